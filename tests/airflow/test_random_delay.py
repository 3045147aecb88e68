"""DAGs with one interval begin at different phases; without a scheduler."""

from tidefold_airflow.dags.settings import spread_schedule


def test_the_random_delay_of_an_interval_is_within_it_and_stays() -> None:
    hourly = {spread_schedule("@hourly", f"dag {i}") for i in range(500)}
    assert hourly == {f"{minute} * * * *" for minute in range(60)}
    assert spread_schedule("@daily", "a") == spread_schedule("@daily", "a") != spread_schedule("@daily", "b")
    minute, hour, *_, day = spread_schedule("@weekly", "a").split()
    assert (int(minute) < 60, int(hour) < 24, int(day) < 7) == (True, True, True)
    assert spread_schedule("*/5 * * * *", "a") == "*/5 * * * *"
