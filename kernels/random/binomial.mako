## Algorithm   A binomial number by inversion of a uniform one.
## Operands    u: the uniform number. n, chance: the parameters, for which NumPy takes this method.
## NDRange     None: a function of one work-item.
## Workspace   None.
## Invariants  NumPy takes another number where the sum of probabilities does not reach u, which rounding makes happen
##             once in 10^15 draws. Here the result is n then.
## Reference   numpy.random.Generator.binomial.
static long random_binomial(const double u, const double n, const double chance)
{
    #pragma OPENCL FP_CONTRACT OFF
    const int flips = chance > 0.5;
    const double p = flips ? 1.0 - chance : chance, q = 1.0 - p;
    double x = 0.0, px = exp(n * log(q));
    for (double left = u; left > px && x < n;) {
        x += 1.0;
        left -= px;
        px = ((n - x + 1.0) * p * px) / (x * q);
    }
    return (long)(flips ? n - x : x);
}
