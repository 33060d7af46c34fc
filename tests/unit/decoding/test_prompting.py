"""A prompt's token ids begin with one beginning of sequence, whatever template and tokenizer add; and never change."""

import datetime

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from specloss.benchmarks import Item
from specloss.decoding.prompting import PromptError, encode

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


def test_a_template_that_refuses_the_messages_is_one_line_with_file_and_row():
    refusing = tokenizer("{{ raise_exception('no system\n role') }}", False)
    with pytest.raises(PromptError, match=r"^x\.jsonl:7: the target's chat template fails: .*no system role"):
        encode(refusing, CHAT)


@pytest.mark.parametrize("expression", ["strftime_now('%d %b %Y')", "date_string"])
def test_a_template_that_writes_the_date_gives_the_same_tokens_every_day(expression):
    text, ids = encode(tokenizer("{{ " + expression + " }} " + TURNS, False), CHAT)
    assert text.startswith("26 Jul 2024 ") and [WORDS[i] for i in ids[:3]] == ["26", "Jul", "2024"]
    assert datetime.date.today().year != 2024
