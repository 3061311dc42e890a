"""What a project of its own says of its cluster. Simulated, so that it takes seconds: leave out `on` for containers."""

import pytest

pytestmark = pytest.mark.chaos(on="simulation", rate=50, partitions=2, time_limit="20s")


def test_they_survive_a_power_cut_of_one_broker(chaos):
    chaos.run(nemesis="power-outage", seed=1, expect=["recovery < 60s"]).assert_passed()


def test_they_do_not_survive_a_power_cut_of_all_brokers(chaos):
    """A control: if nothing is lost here, nothing is tested."""
    chaos.run(nemesis="power-outage-cluster", seed=1).assert_failed()


def test_they_survive_kills_whatever_the_seed(chaos):
    chaos.explore(seeds=range(2), nemesis="kill").assert_passed()


def test_what_a_failure_looks_like(chaos):
    """Planted, to be read: nothing is acknowledged within a microsecond."""
    chaos.run(nemesis="kill", seed=1, expect=["p99 < 0.001ms"]).assert_passed()
