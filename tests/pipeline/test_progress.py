import time

from prunebench.pipeline.progress import Lines, Silent, progress_for


def test_a_stage_is_a_line_at_its_start_and_its_end(capsys):
    lines = Lines()
    lines.start("evaluate", 3)
    lines.advance()
    lines.advance(failed=True)
    lines.finish()
    lines.stop()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "evaluate: 0/3, 0 s"
    assert last.startswith("evaluate: 2/3, 1 failed, 0 s")


def test_lines_come_while_one_step_takes_long_and_not_between_stages(capsys):
    lines = Lines(every_s=0.02)
    lines.start("plan", 1)
    deadline = time.monotonic() + 5
    seen = ""
    while seen.count("\n") < 4 and time.monotonic() < deadline:
        seen += capsys.readouterr().err
        time.sleep(0.01)
    assert seen.count("plan: 0/1") >= 4
    lines.finish()
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""
    lines.stop()


def test_quiet_progress_says_nothing(capsys):
    with progress_for(quiet=True) as progress:
        assert isinstance(progress, Silent)
        progress.start("plan", 1)
        progress.advance()
        progress.finish()
    assert capsys.readouterr().err == ""
