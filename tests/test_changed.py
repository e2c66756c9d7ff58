"""`make check-fast` runs the tests nearest to a change."""

from __future__ import annotations

from changed import ROOT, imports_of, module_of, nearest_tests

LOG = ROOT / "storage/tidelog_storage/log.py"
SEGMENT = ROOT / "storage/tidelog_storage/segment.py"
SUPPORT = ROOT / "tests/support/logs.py"
TEST_LOG = ROOT / "tests/storage/test_log.py"
IMPORTS = {
    LOG: {module_of(SEGMENT)},
    SEGMENT: set[str](),
    SUPPORT: {module_of(LOG)},
    TEST_LOG: {module_of(SUPPORT)},
}


def test_modules_have_the_names_under_which_they_are_imported() -> None:
    assert module_of(LOG) == "tidelog_storage.log"
    assert module_of(ROOT / "broker/tidelog/config/__init__.py") == "tidelog.config"
    assert module_of(SUPPORT) == "support.logs"
    assert {"changed", "changed.ROOT"} <= imports_of(ROOT / "tests/test_changed.py")


def test_tests_are_reached_through_what_they_import() -> None:
    assert nearest_tests({SEGMENT}, IMPORTS) == {TEST_LOG}
    assert nearest_tests({TEST_LOG}, {}) == {TEST_LOG}
    direct = {**IMPORTS, ROOT / "tests/storage/test_segments.py": {module_of(SEGMENT)}}
    assert nearest_tests({SEGMENT}, direct) == set()  # that file does not exist
    assert nearest_tests({LOG}, {**IMPORTS, LOG: set()}) == {TEST_LOG}
