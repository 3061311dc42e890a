"""An exploration that learns: runs that reached abstract states not seen before are kept, and changed a little.

Greybox fuzzing of fault schedules, as AFL does for inputs, Mallory (CCS 2023) for distributed systems and model-guided
fuzzing (OOPSLA 2025) by states of an abstract model: here by those of checkers/inside/kraft/simulated/states.py.
`mutation` makes a run of others; `traits` learns which settings, latencies and kinds of schedules gain; `guide` decides
what is simulated next; `corpus` keeps from one exploration to the next what is worth being changed.
"""
