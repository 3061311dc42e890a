"""Mutants of the cluster's code: what an exploration is measured by.

A mutant is one function of `cluster_image` with one small change (DeMillo, Lipton and Sayward, "Hints on Test Data
Selection", 1978), made by a machine that knows nothing of the protocol. Which share of them explorations find (kill)
says how much of the code's meaning the invariants and faults guard. `operators` says what changes are made, `places`
lists a module's mutants, `switch` puts one into the running code, `reached` notes which places a run comes
to, and where a change makes a difference. Those that are measured are drawn by `harness.explore.proofs.mutation`.

An id names module, function, operator and place: `kraft.broker.rules:may_join_isr:comparison:0`.
"""
