## Accumulators of one kind of reduction and one number of lanes, or (fold) their horizontal reduction; partial
## results are stored as they are.
<%page args="name, acc_dtype, in_dtype, out_dtype, combine, identity, compensation, pair_in, pair_out, unit, index,
             lanes, fold"/>
<%namespace name="shared" file="/reduction/accumulator.mako"/>
% if fold:
${shared.horizontal_reduce(lanes)}
% else:
${shared.accumulator(lanes)}
% endif
