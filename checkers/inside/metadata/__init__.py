"""The metadata log of a KRaft cluster, of whatever target has one: its copies, the state that it gives, who held what
when."""
