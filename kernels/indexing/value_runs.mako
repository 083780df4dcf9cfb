## The place of value number `k`: values are y_count apart, and y_outer after `inner` of them.
<%def name="at(k)" buffered="True" filter="trim">
(p.inner == p.count ? (${k}) * p.y_count : (${k}) / p.inner * p.y_outer + (${k}) % p.inner * p.y_count)
</%def>
