"""A prompt's token ids begin with one beginning of sequence, whatever template and tokenizer add; and never change."""

import datetime
import json
from dataclasses import replace

import pytest
import yaml
from places import DEMO, ROOT
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer

from specloss import decode
from specloss.benchmarks import Item
from specloss.cluster.output import write_cell
from specloss.cluster.worker import CellOutput
from specloss.decoding.cell import decode_cell
from specloss.experiment.config import parse_config
from specloss.experiment.grid import expand
from specloss.models.prompting import PromptError, encode, prepare

WORDS = ["<s>", "<pad>", "user", "system", "assistant", "hello", "there", "26", "Jul", "2024", ":"]
TURNS = (
    "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)
CHAT = Item(
    "a", None, None, ({"role": "system", "content": "there"}, {"role": "user", "content": "hello"}), "x.jsonl:7"
)


def tokenizer(template, adds_beginning, bos="<s>"):
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if adds_beginning:
        backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, pad_token="<pad>", unk_token="<pad>")
    made.chat_template = template
    return made


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("begin", ["", "<s> ", "<s> <s> "])
def test_a_chat_begins_with_one_beginning_of_sequence_where_the_model_wants_one(adds, begin):
    text, ids = encode(tokenizer(begin + TURNS, adds), CHAT)
    words = [WORDS[i] for i in ids]
    assert words == ["<s>"] * (adds or bool(begin)) + ["system", ":", "there", "user", ":", "hello", "assistant"]
    assert text.endswith("user : hello assistant")


@pytest.mark.parametrize("text", ["hello there", "<s> hello there"])
def test_a_raw_prompt_is_tokenized_as_the_tokenizer_does_without_a_second_beginning(text):
    assert encode(tokenizer(None, True), Item("a", text, None)) == (text, [0, 5, 6])


def test_a_tokenizer_without_a_beginning_of_sequence_gets_none():
    assert encode(tokenizer(TURNS, False, bos=None), CHAT)[1][0] == WORDS.index("system")


def test_a_chat_needs_a_template_or_the_plain_fallback():
    plain = tokenizer(None, True)
    with pytest.raises(PromptError, match=r"^x\.jsonl:7: .* no chat template; .*'chat' to 'plain'$"):
        encode(plain, CHAT)
    assert encode(plain, CHAT, chat="plain") == ("there\n\nhello", [0, 6, 5])


REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TURNS
ALTERNATES = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + TURNS
)
DROPS = TURNS.replace("{{ m.role }}", "{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}")
SHOUTS = TURNS.replace("{{ m.content }}", "{{ m.content | replace('there', '26') }}")


@pytest.mark.parametrize("template", [REFUSES, ALTERNATES, DROPS])
def test_without_a_system_role_the_users_turn_begins_with_what_the_system_says(template):
    told = prepare(tokenizer(template, False), CHAT)
    assert [WORDS[i] for i in told.ids] == ["user", ":", "there", "hello", "assistant"]
    assert told.text.startswith("user : there\n\nhello") and told.system_text == "before the first user message"
    assert CHAT.messages[1]["content"] == "hello"


@pytest.mark.parametrize("template, words", [(TURNS, "system : there user : hello"), (SHOUTS, "system : 26 user")])
def test_a_template_with_a_system_role_keeps_it_whatever_it_does_to_the_text(template, words):
    told = prepare(tokenizer(template, False), CHAT)
    assert told.text.startswith(words) and told.system_text == "own role"


def test_items_without_a_system_message_say_nothing_of_it():
    user = Item("a", None, None, CHAT.messages[1:])
    assert prepare(tokenizer(REFUSES, False), user).system_text is None
    assert prepare(tokenizer(REFUSES, False), CHAT, "plain").system_text is None


def test_a_system_message_that_no_user_can_say_is_one_line():
    with pytest.raises(PromptError, match=r"^a: .*no system role, and there is no user message"):
        prepare(tokenizer(REFUSES, False), Item("a", None, None, CHAT.messages[:1]))


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("begin", ["", "<s> "])
def test_a_rendered_chat_through_the_api_has_a_benchmarks_tokens(pair, adds, begin):
    words = tokenizer(begin + TURNS, adds)
    text, ids = encode(words, CHAT)
    from_text, from_ids = (
        decode(replace(pair, tokenizer=words), [prompt], max_new_tokens=2).steps["problem"] for prompt in (text, ids)
    )
    assert from_text == from_ids and ids.count(0) == (adds or bool(begin))


def test_a_cell_says_where_its_template_has_the_systems_text(pair, tmp_path):
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "system", "content": "1"}, {"role": "user", "content": "2+3?"}]}))
    config = yaml.safe_load((ROOT / "config/demo.yaml").read_text()) | {"results": str(tmp_path)}
    config["benchmarks"] = {"mine": {"task": "prompts", "options": {"file": str(file)}, "max_new_tokens": 3}}
    config["pairs"]["demo"] |= {"target": str(DEMO / "target"), "draft": str(DEMO / "draft")}
    cell = expand(parse_config(config, "x"))[0]
    for template, said in ((REFUSES, "before the first user message"), (TURNS, "own role")):
        words = AutoTokenizer.from_pretrained(DEMO / "target")
        words.chat_template = template.replace("{{ m.role }} : {{ m.content }} ", "{{ m.content }}").replace(
            "assistant", ""
        )
        decoded = decode_cell(replace(pair, tokenizer=words), cell, [0], batch_size=1)
        made = pair.provenance() | {"packages": {}}
        write_cell(cell, tmp_path, [CellOutput(*decoded, 1.0, made, ())])
        run = json.loads((cell.folder(tmp_path) / "cell.json").read_text())["run"]
        assert run["generation"]["system_text"] == said
        assert decoded[1]["prompt"].to_pylist() == ["1\n\n2+3?" if said != "own role" else "12+3?"]


def test_a_template_that_refuses_the_messages_is_one_line_with_file_and_row():
    refusing = tokenizer("{{ raise_exception('no system\n role') }}", False)
    with pytest.raises(PromptError, match=r"^x\.jsonl:7: the target's chat template fails: .*no system role"):
        encode(refusing, CHAT)


@pytest.mark.parametrize("expression", ["strftime_now('%d %b %Y')", "date_string"])
def test_a_template_that_writes_the_date_gives_the_same_tokens_every_day(expression):
    text, ids = encode(tokenizer("{{ " + expression + " }} " + TURNS, False), CHAT)
    assert text.startswith("26 Jul 2024 ") and [WORDS[i] for i in ids[:3]] == ["26", "Jul", "2024"]
    assert datetime.date.today().year != 2024
