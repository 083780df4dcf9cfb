## Arrays in local memory that work-items access in two ways: neighbours read neighbouring elements, or each has a run
##     of eight. A gap after each 128 bytes, the width of 32 banks, keeps both free of bank conflicts.
<%! from pytensor_cl.codegen.local_memory import gap, per_gap %>
## The place of element number `k`.
<%def name="at(k, itemsize)" buffered="True" filter="trim">
(${k}) + (${k}) / ${per_gap(itemsize)}${f" * {gap(itemsize)}" if gap(itemsize) > 1 else ""}
</%def>
