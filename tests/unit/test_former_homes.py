"""Import paths that users know go on working after the modules moved."""


def test_what_was_imported_from_its_former_home_is_the_same_thing():
    from specloss.benchmarks import answers
    from specloss.benchmarks.parsing import numbers
    from specloss.decoding import prompting as former
    from specloss.models import prompting

    assert answers.equal is numbers.equal and answers.grade_answer is numbers.grade_answer
    assert former.encode is prompting.encode and former.PromptError is prompting.PromptError
