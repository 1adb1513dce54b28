import time

from prunebench.pipeline.progress import Bar, Lines, Pace, Silent, progress_for


def test_a_stage_is_a_line_at_its_start_and_its_end(capsys):
    lines = Lines()
    lines.start("evaluate", 3)
    lines.advance()
    lines.advance(failed=True)
    lines.finish()
    lines.stop()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "evaluate: 0/3 done, 3 to do, 0 failed, 0 s"
    assert last.startswith("evaluate: 2/3 done, 1 to do, 1 failed, 0 s, ")
    assert last.endswith("left")


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


def test_a_resumed_stage_counts_what_was_there_and_paces_itself_by_what_comes(capsys):
    lines = Lines()
    lines.start("evaluate", 5000, done=1200)
    lines.advance()
    lines.finish()
    lines.stop()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "evaluate: 1200/5000 done, 3800 to do, 0 failed, 0 s, resumed: 1200 done before"
    assert last == "evaluate: 1201/5000 done, 3799 to do, 0 failed, 0 s"


def test_the_pace_is_that_of_the_last_steps_up_to_now(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("prunebench.pipeline.progress.time.monotonic", lambda: now[0])
    pace = Pace(steps=4)
    for at in (100.0, 100.5, 101.0, 101.5, 102.0):
        now[0] = at
        pace.step()
    assert pace.per_second() == 2.0
    assert pace.told(480) == "2.0/s, about 4 min left"
    now[0] = 108.0
    assert pace.told(30) == "30.0/min, about 60 s left"
    assert pace.told(0) == "30.0/min"


def test_the_bar_shows_done_failed_and_pace_on_a_terminal(capsys):
    bar = Bar()
    bar.start("evaluate", 6, done=2)
    for failed in (False, True, False):
        bar.advance(failed=failed)
    bar.finish()
    bar.stop()
    told = capsys.readouterr().err
    assert "5/6" in told
    assert "1 failed" in told
    assert "left" in told


def test_quiet_progress_says_nothing(capsys):
    with progress_for(quiet=True) as progress:
        assert isinstance(progress, Silent)
        progress.start("plan", 1)
        progress.advance()
        progress.finish()
    assert capsys.readouterr().err == ""
