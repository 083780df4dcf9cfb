"""Libraries that take arrays of any namespace, with device arrays: results are NumPy's, and no array goes to the host.

The calls run in another process, because SciPy reads SCIPY_ARRAY_API when it is imported.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pytensor_cl.array as xp
from tests.conftest import ALL, DRIVERS

CALLS = {
    "array_api_extra": [
        "xpx.at(x)[1:3].set(2.0, copy=True)",
        "xpx.at(x)[1:3].add(2.0, copy=True)",
        "xpx.at(x, x > 0).multiply(2.0, copy=True)",
        "xpx.isclose(x, x + 1e-9)",
        "xpx.cov(x)",
        "xpx.apply_where(x > 0, (x, y), lambda a, b: a * b, lambda a, b: a - b)",
        "xpx.isin(i, i[:2])",
        "xpx.nunique(i)",
        "xpx.one_hot(i, 4)",
    ],
    "scipy": [
        "special.logsumexp(x, axis=1)",
        "special.softmax(x, axis=1)",
        "fft.fftn(x + 1j * y)",
        "fft.irfft(fft.rfft(x))",
        "stats.zscore(x, axis=1)",
        "stats.pearsonr(x, y, axis=1).statistic",
        "stats.skew(x, axis=0)",
        "vq.whiten(x)",
        "signal.hilbert(x)",
        "integrate.simpson(x, dx=0.1)",
        "integrate.cubature(lambda z: z[:, 0] ** 2, x[0, :1] * 0, x[0, :1] * 0 + 1).estimate",
        "elementwise.find_root(lambda z: z**2 - 2, (p[0] * 0, p[0] + 2)).x",
        "differentiate.derivative(lambda z: z**3, x[0]).df",
    ],
    "sklearn": [
        "abs(PCA(2, svd_solver='full').fit_transform(x))",
        "Ridge(solver='svd').fit(x, x[:, 0] + 1).predict(y)",
        "LinearDiscriminantAnalysis(solver='svd').fit(t, c).predict_proba(t)",
        "StandardScaler().fit_transform(x)",
        "MinMaxScaler().fit_transform(x)",
        "metrics.accuracy_score(c, c[::-1])",
        "metrics.r2_score(x[:, 0], y[:, 0])",
        "metrics.roc_auc_score(c, t[:, 0])",
        "metrics.pairwise.cosine_similarity(x, y)",
    ],
}
"""Calls that every run tries."""

MORE_CALLS = {
    "array_api_extra": [
        "xpx.at(x)[x > 0].set(0.0, copy=True)",
        "xpx.at(x)[0, ...].max(0.5, copy=True)",
        "xpx.atleast_nd(x, ndim=3)",
        "xpx.create_diagonal(x[0])",
        "xpx.kron(x, y[:2])",
        "xpx.pad(x, 2)",
        "xpx.setdiff1d(i, i[:2])",
        "xpx.union1d(i, i[:2])",
        "xpx.sinc(x)",
        "xpx.partition(x[0], 2)",
        "xpx.apply_where(x > 0, x, lambda a: a * 2, fill_value=0.0)",
        "xpx.nan_to_num(x / (x > 0))",
        "xpx.searchsorted(x[0] * 0 + 1, y[0])",
        "xpx.angle(x + 1j * y)",
    ],
    "scipy": [
        *(f"special.{name}" for name in ("log_softmax(x, axis=1)", "xlogy(p, p)", "rel_entr(p, p)")),
        *(f"fft.{name}(x)" for name in ("fft", "ifft", "rfft", "fftshift", "ifftshift", "fft2", "rfft2", "rfftn")),
        *(f"fft.{name}(x + 1j * y)" for name in ("ifft", "hfft", "ifftn", "ifft2", "irfft", "irfftn")),
        *(
            f"stats.{name}(long, axis=1)"
            for name in ("kurtosis", "sem", "tmean", "circmean", "circvar", "circstd", "kstat", "kstatvar", "rankdata")
        ),
        *(f"stats.{name}(p, axis=1)" for name in ("gmean", "hmean", "variation", "gstd", "gzscore")),
        "stats.describe(x).variance",
        "stats.zmap(x, y)",
        "stats.pmean(p, 2.0, axis=1)",
        "stats.moment(x, 2, axis=1)",
        "stats.trim_mean(x, 0.1)",
        "stats.ttest_ind(x, y).statistic",
        "stats.bartlett(x[0], y[0], x[1]).statistic",
        "stats.boxcox_llf(1.5, p[0])",
        "stats.directional_stats(x).mean_direction",
        "stats.median_abs_deviation(x)",
        "signal.fftconvolve(x, y[:3, :3])",
        "signal.oaconvolve(x, y[:3, :3])",
        "signal.hilbert2(x)",
        "signal.resample(long, 16)",
        "integrate.trapezoid(x)",
        "integrate.cumulative_trapezoid(x)",
        "integrate.cumulative_simpson(x, dx=0.1)",
        "integrate.tanhsinh(lambda z: z**2, p[0] * 0, p[0]).integral",
        "elementwise.find_minimum(lambda z: (z - 1) ** 2, (p[0] * 0 - 1, p[0] * 0 + 0.5, p[0] * 0 + 2)).x",
        "elementwise.bracket_root(lambda z: z**2 - 2, p[0] * 0, p[0] * 0 + 1).bracket[0]",
        "differentiate.jacobian(lambda z: z**2, x[0]).df",
        "differentiate.hessian(lambda z: z[0] ** 2 * z[1], x[0, :2]).ddf",
        "Rotation.from_quat(x[:, :4]).as_matrix()",
        "Rotation.from_rotvec(x[:, :3]).as_quat()",
        "optimize.rosen(x)",
        "constants.convert_temperature(x, 'C', 'K')",
    ],
    "sklearn": [
        "abs(PCA(2, svd_solver='covariance_eigh').fit_transform(x))",
        "PCA(2, svd_solver='full', whiten=True).fit(x).score_samples(x)",
        "RidgeCV().fit(x, x[:, 0]).predict(y)",
        "RidgeClassifier(solver='svd').fit(t, c).predict(t)",
        "GaussianNB().fit(t, c).predict_proba(t)",
        "MaxAbsScaler().fit_transform(x)",
        "Normalizer().fit_transform(x)",
        "Binarizer().fit_transform(x)",
        "PolynomialFeatures(2).fit_transform(x)",
        "LabelEncoder().fit_transform(c)",
        "StandardScaler().fit(x).inverse_transform(x)",
        *(
            f"metrics.{name}(c, c[::-1])"
            for name in ("f1_score", "precision_score", "recall_score", "jaccard_score", "zero_one_loss")
        ),
        *(
            f"metrics.{name}(x[:, 0], y[:, 0])"
            for name in ("mean_squared_error", "mean_absolute_error", "explained_variance_score", "max_error")
        ),
        *(f"metrics.{name}(p[:, 0], p[:, 1])" for name in ("mean_gamma_deviance", "mean_poisson_deviance")),
        "metrics.log_loss(c, t[:, 0] * t[:, 0] / 99)",
        "metrics.brier_score_loss(c, t[:, 0] * t[:, 0] / 99)",
        *(
            f"metrics.pairwise.{name}(x, y)"
            for name in ("euclidean_distances", "rbf_kernel", "linear_kernel", "polynomial_kernel", "sigmoid_kernel")
        ),
    ],
}
"""Calls of the wider sweep, PYTENSOR_CL_SWEEPS=all."""

ON_HOST = (
    "stats.pearsonr",
    "stats.ttest_ind",
    "RidgeClassifier",
    "metrics.f1_score",
    "metrics.precision_score",
    "metrics.recall_score",
    "metrics.jaccard_score",
    "metrics.log_loss",
    "metrics.roc_auc_score",
)
"""Calls that copy something to the host by themselves: SciPy for p-values, scikit-learn for labels."""

RUN = r"""
import json, sys, warnings
import numpy as np
import pytensor_cl.array as xp
from pytensor_cl.runtime.array import GpuArray

warnings.simplefilter("ignore")
library, calls, on_host = json.load(sys.stdin)
if library == "array_api_extra":
    import array_api_extra as xpx
elif library == "scipy":
    from scipy import constants, differentiate, fft, integrate, optimize, signal, special, stats
    from scipy.cluster import vq
    from scipy.optimize import elementwise
    from scipy.spatial.transform import Rotation
else:
    import sklearn
    from sklearn import metrics
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge, RidgeClassifier, RidgeCV
    from sklearn.naive_bayes import GaussianNB
    from sklearn.preprocessing import *
    sklearn.set_config(array_api_dispatch=True)

downloads = []
def counted(name):
    inner = getattr(GpuArray, name)
    def call(self, *arguments, **options):
        if self.size > 1:
            downloads.append(name)
        return inner(self, *arguments, **options)
    setattr(GpuArray, name, call)
for name in ("to_host", "__array__", "__dlpack__", "host_view", "map", "to_pyopencl", "to_buffer"):
    counted(name)

rng = np.random.default_rng(0)
host = {"x": rng.normal(size=(6, 5)), "y": rng.normal(size=(6, 5)), "i": np.array([1, 3, 2, 3])}
host["p"], host["long"] = np.abs(host["x"]) + 0.1, np.tile(host["x"], (1, 4))
host["t"], host["c"] = rng.normal(size=(20, 3)), np.arange(20) % 3 // 2
device = {name: xp.asarray(value) for name, value in host.items()}
for call in calls:
    expected = eval(call, globals() | host)
    downloads.clear()
    try:
        found = eval(call, globals() | device)
    except Exception as error:
        print(f"{call}: {type(error).__name__}: {error}")
        continue
    if downloads and not call.startswith(tuple(on_host)):
        print(f"{call}: downloads by {downloads}")
    if np.ndim(expected) and not isinstance(found, GpuArray):
        print(f"{call}: the result is a {type(found).__name__}")
    found, expected = np.asarray(found), np.asarray(expected)
    close = found.shape == expected.shape and np.allclose(found, expected, rtol=1e-6, atol=1e-8, equal_nan=True)
    if not close or (expected.ndim and found.dtype != expected.dtype):
        print(f"{call}: {found.dtype} {found} is not {expected.dtype} {expected}")
print(len(calls), "calls")
"""


def _run(library, calls, driver):
    """Return what a process prints that makes the calls on a driver."""
    environment = os.environ | {
        "SCIPY_ARRAY_API": "1",
        "PYTENSOR_FLAGS": f"device=opencl:{driver},floatX=float64",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps([library, calls, ON_HOST]),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("Mapped name")]


@pytest.mark.parametrize("library", CALLS)
@pytest.mark.parametrize("driver", DRIVERS if ALL else DRIVERS[:1])
def test_results_of_other_libraries_are_numpys(driver, library):
    calls = CALLS[library] + (MORE_CALLS[library] if ALL else [])
    pytest.importorskip(library)
    assert _run(library, calls, driver) == [f"{len(calls)} calls"]


def test_functions_of_array_api_compat(context):
    compat = pytest.importorskip("array_api_compat")
    x = xp.asarray(np.ones((2, 3), "float32"), device=context.name)
    assert compat.is_array_api_obj(x) and compat.is_writeable_array(x) and not compat.is_lazy_array(x)
    assert compat.array_namespace(x, x, 1) is xp
    assert compat.device(x) == context.name and compat.to_device(x, compat.device(x)) is x
    assert compat.size(x) == 6
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(x, np.ones(3))
