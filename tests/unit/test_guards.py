"""The list of guards that `make guards` takes out is of the code as it is."""

from __future__ import annotations

import pytest

from customer_activity.settings import PROJECT
from drills.guards import GUARDS, Guard


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_in_the_code_once_and_its_tests_are_there(guard: Guard) -> None:
    code = guard.path(PROJECT).read_text(encoding="utf-8")
    assert code.count(guard.code) == 1
    assert guard.without != guard.code
    assert (PROJECT / guard.tests[0]).is_file()
