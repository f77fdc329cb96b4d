"""Public reports of one computation with different results, as cases that `fpsim.explain` takes.

Each case has the operation, its inputs, and what was observed; then whether rounding explains it (None: the report has
no data that would decide), and the names of mechanisms one of which an explanation has to give. Inputs are made anew
from values, seeds and laws. Where a report says only that results differ, so does the case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

LOW = "low-precision accumulator"
ORDER = "order of additions"
OPERANDS = "reduced-precision operands"
LIBRARY = "elementary-function error"


@dataclass(frozen=True)
class Report:
    """A report as a case, and what is known about it.

    Attributes
    ----------
    name : str
    operation, dtype : str
    inputs : Any
    observed : dict or list
    explainable : bool or None
        Whether rounding explains it; None without data.
    mechanisms : tuple of str
        Any of these names the mechanism.
    settings, shapes
        Of the operation.
    """

    name: str
    operation: str
    dtype: str
    inputs: Any
    observed: Any
    explainable: bool | None
    mechanisms: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    shapes: Any = ()

    def case(self) -> dict[str, Any]:
        """Return the case for `fpsim.explain`."""
        return {
            "operation": self.operation, "dtype": self.dtype, "inputs": self.inputs, "observed": self.observed,
            "settings": self.settings, "shapes": self.shapes,
        }  # fmt: skip


_HALF_SUM = (
    (66, 63, 21, 84, 86, 90, 86, 21), (81, 68, 22, 39, 43, 38, 24, 63), (96, 98, 33, 85, 90, 87, 52, 99),
    (56, 21, 95, 59, 85, 51, 16, 37), (74, 55, 95, 97, 45, 82, 71, 33), (88, 90, 91, 68, 31, 22, 53, 30),
    (68, 22, 73, 82, 36, 56, 96, 20), (71, 66, 82, 17, 97, 35, 20, 43), (31, 81, 87, 90, 60, 49, 96, 91),
)  # fmt: skip
_VIEW = {
    "m": [[0.943755, 0.162902, -0.287733, -0.241071], [0.0669876, -0.946367, -0.316074, 0.150359],
          [-0.32379, 0.279022, -0.90405, -0.54078], [0, 0, 0, 1]],
    "use": "m[0:3,0:3] times m[0:3,3:4]",
}  # fmt: skip
_TPU = [[0.3744, 0.1656], [0.4707, 0.1663]], [[0.3946, 0.1186], [0.1569, 0.3145]]

_I, _J = "arange(1,3001)", "arange(1,3001).reshape(3000,1)"
_COLUMNS = f"({_I}*({_I} + {_J})*({_I} - {_J})).reshape(9000000)"

REPORTS = (
    # -- sums and means
    Report("candle-3718", "sum", "float16", {"fill": 1}, {"CPU": "2048", "Metal": "4096"}, True, (LOW,), shapes=[[4096]]),
    Report("cpython-126181", "sum", "float64", [[2.5392, 0.4608, -3.0]],
           {"3.11": "0.0", "3.12": "1.1102230246251565e-16"}, True, ("compensated summation",)),
    Report("cudajl-1773", "mean", "float32", {"fill": 1}, {"scaled first": "0.9999992", "divided last": "1.0"}, True,
           ("sum times 1/n, or of terms divided first",), shapes=[[640]]),
    Report("e3sm-8722", "MPI global sum", "float64", None, {"results": "differ in the last bits"}, None, (ORDER,)),
    Report("ml-dtypes-63", "sum", "bfloat16", "uniform [0,1)",
           [{"side": "n=10000", "value": "256", "n": 10000}, {"side": "n=20000", "value": "256", "n": 20000},
            {"side": "JAX", "value": "4960", "n": 10000}], True, ("stagnation", LOW), shapes=[[10000]]),
    Report("numpy-8170", "mean", "float32", "RandomState(1234).rand(5000000,2)*100",
           {"|mean(axis=0)[0] - mean of the column|": "0.0572586"}, True, (ORDER,), {"axis": 0}),
    Report("openmp-forum", "mean", "float64",
           _COLUMNS, {"threads": "2250749749.9169", "SUM": "2250749750.08717"},
           True, (ORDER,)),
    Report("pytorch-19164", "sum", "float32", {"fill": 0.1}, {"result": "1392666.0", "true": "1392640.0"}, True, (ORDER,),
           {"scale": 10}, [[5 * 68 * 64 * 64]]),
    Report("pytorch-59489", "sum", "float16", {"x": _HALF_SUM}, {"CPU": "4444.0", "CUDA": "4448.0", "NumPy": "4450.0"}, True,
           (LOW,)),
    Report("tensorflow-22398", "column sum by atomics", "float32", "2*normal(1024,50)",
           {"max run-to-run difference": "6.10352e-05"}, True, ("nondeterministic order",), {"axis": 0}, [[1024, 50]]),
    Report("numba-2480", "custom reduction", "float64", {"x": "1..10", "operator": "a + 20*b"},
           {"GPU": "71381.0", "CPU": "1081.0"}, False, ("operator that is not associative",), shapes=[[10]]),
    Report("numba-3681", "parallel sum", "float64", "normal(20,20)", {"parallel against serial": "differ beyond allclose"},
           False, ("lost updates", "fault"), shapes=[[20, 20]]),
    Report("rccl-11661", "all-reduce", "bfloat16", {"spec": "normal, 4 ranks"}, {"elements that differ": "about 34%"}, True,
           ("rounded partial results", LOW, ORDER), shapes=[[1664, 5120]]),
    # -- products
    Report("jax-9973", "matmul", "float32", _TPU,
           {"CPU": [["0.17372088", "0.09648504"], ["0.21183069", "0.10812637"]],
            "TPU": [["0.17405128", "0.09669876"], ["0.21180916", "0.10805416"]]}, True, (OPERANDS,)),
    Report("mlx-1163", "matmul", "float32", _VIEW,
           {"CPU": ["-0.0474179", "0.0124829", "0.608902"], "GPU": ["0.0557015", "0.219578", "0.952311"]}, False,
           ("stride ignored",)),
    Report("numpy-11046", "matmul", "float64", "arange(1e5/4)/1e5 dot arange(1e5).reshape(-1,4)/1e5",
           {"max differences": ["1822.7068840452998", "1540.2636287421", "96.10628199050007"]}, False, ("fault",)),
    Report("numpy-11419", "dot", "float32", [[0.7372549, 0.25882354, 0.00392157], [1, 1, 1]],
           {"1 row": "1.0", "2 rows": "1.0000001"}, True, (ORDER,)),
    Report("numpy-14917", "matmul", "float32", "numpy seed 1: randn(9,6), randn(6,6)",
           {"one row": ["-0.9044868", "-1.1708502", "0.90713596", "3.5594249", "1.1374012", "-1.3826287"],
            "more rows": ["-0.90448684", "-1.1708503", "0.9071359", "3.5594249", "1.1374011", "-1.3826288"]}, True, ("FMA",)),
    Report("numpy-15591", "dot", "float64", "full(1000, 1 + 1e-14), full(1000, 1 + 1e-14)",
           {"PC": "1000.0000000000208", "laptop": "1000.0000000000207", "sum": "1000.0000000000198"}, True, ("FMA", ORDER)),
    Report("numpy-25100", "matmul", "float64", "rand", {"elements": "many differ"}, None, (ORDER,), shapes=[[80, 80], [80, 3500]]),
    Report("numpy-29391", "matmul", "float64", "3*ones((1000,3)), eye(3)", {"some threads": "values of another thread"}, False,
           ("fault",)),
    Report("onednn-3435", "int8 gemm", "int8", None, {"by hand": "-43340090", "oneDNN": "-43340088"}, True,
           ("output rounding or representation",)),
    Report("openblas-2914", "gemm", "float32", {"m": 1, "n": 1, "k": 0}, {"expected": "0.0", "computed": "0.266733"}, False,
           ("fault",)),
    Report("pytorch-111634", "batched matmul", "float32", {"left": "zeros", "right": "ones"},
           {"entries equal to 1 in the first call": "50505735", "entries equal to 1 in the second": "182632455"}, False,
           ("fault",), shapes=[[911, 9, 1], [1, 32769]]),
    Report("pytorch-122045", "linear", "float32", "torch seed 1234: randn(50304,1), randn(9,1024,1)",
           {"std of difference": "1.3945"}, False, ("fault",)),
    Report("pytorch-182952", "matmul", "float16", "full((64,64), 3.0517578125e-05), ones((64,64))",
           {"expected": "0.001953125", "hipBLASLt": "flushed"}, False, ("subnormal numbers flushed to zero (FTZ/DAZ)",)),
    Report("pytorch-41248", "matmul", "float32", "numpy seed 0 standard_normal", {"mean difference": "1e-6 to 1e-5"}, True,
           (ORDER,), shapes=[[10, 512], [512, 5]]),
    Report("pytorch-4374", "matmul", "float32", "arange(1,36001).reshape(12000,3), arange(1,721).reshape(240,3).T",
           {"200 rows": "equal", "2000 rows": "not equal"}, True, (ORDER,)),
    Report("pytorch-51276", "matmul", "float64", "torch seed 2: ones((1,90)), rand(128,90,dtype=float64).T",
           {"first outputs": ["44.6534", "40.3130", "41.8745", "46.2672"], "largest difference of batches": "1.4e-14"}, True,
           (ORDER,)),
    Report("pytorch-53635", "matmul", "float32", [[1024.5], [[1.0]]], {"RTX 3090": "1025.0", "RTX 2080": "1024.5"}, True, (OPERANDS,)),
    Report("pytorch-forum-5e8", "dot", "float32", "uniform", {"CPU": "124996952.0", "GPU": "124997016.0"}, True, (ORDER,),
           shapes=[[500000000]]),
    Report("rocblas-340", "gemm", "float16", "arange(1,16).reshape(5,3).T, array([[5],[4],[3],[2],[1]])",
           {"float32 build": ["75", "90", "105"], "float16 build": ["75", "90", "90"]}, False, ("dropped terms", "fault")),
    Report("so-float4", "dot", "float32",
           [[0.9996291399002075, -0.02438327670097351, -0.01212706696242094, 0.013238593004643917],
            [-0.0018407815368846059, 0.03313406929373741, 0.9884997010231018, 1.0]],
           {"host": "-0.001397025771439075469971", "CUDA": "-0.001397024840116500854492"}, True, ("FMA",)),
    Report("tensorflow-127346", "linear", "float32",
           "default_rng(133006): normal(64,197,1536)*1000, normal(384,1536)*50, bias normal(384)*50",
           {"max difference": "3066.0", "mean difference": "459.58", "max / max output": "0.00029477"}, True, (OPERANDS,)),
    Report("torch-spyre-3624", "matmul", "float16", None, {"max difference": "0.5-0.75"}, None, (ORDER, LOW)),
    # -- norms, variances, distances
    Report("numpy-14691", "std", "float32", {"columns": [100.0, -100.0]},
           {"std(axis=0)": "1.3201232", "std of column": "0.0"}, True, (ORDER,), shapes=[[1000000, 2]]),
    Report("polars-21677", "rolling variance", "float64", {"x": [1.0, 1e-07, 0, 0, 0, 0, 0, 0, 0, 0]},
           {"variances": ["0.2", "1.9291e-15", "-7.0888e-17"]}, True, ("update that removes and adds",), {"window": 5}),
    Report("pytorch-20999", "norm", "float32", "standard normal",
           {"Colab": "151660000.0", "local": "487860000.0", "GPU": "500010000.0"}, True, ("stagnation",), shapes=[[100, 5000000]]),
    Report("pytorch-2436", "var", "float32", [[1, 2, 3, 4, 5, 6, 7, 10]], {"torch": "8.5", "NumPy": "7.4375"}, False,
           ("divisor n - ddof",)),
    Report("pytorch-2470", "variance", "float32", [[2281.5, 2281.25]], {"along dim 0": "0.0", "of all": "0.03125"}, True,
           ("one-pass variance",)),
    Report("pytorch-42479", "pairwise distance", "float32", [[[512695.0]], [[512804.0]]], {"matmul": "0.0", "direct": "109.0"},
           True, ("expanded distance",)),
    Report("pytorch-68326", "norm", "float32", "randn/1000", {"CPU": "9.2732", "true": "10.0005"}, True, ("stagnation",),
           shapes=[[100000000]]),
    Report("pytorch-87171", "std", "float32", {"fill": 0.525}, {"CPU": "6.5294e-08", "GPU": "0.0"}, True,
           ("two passes with a rounded mean", "Welford's updates", ORDER), shapes=[[6]]),
    Report("sklearn-13410", "distance", "float32", "full((1,1000000), 1.0), full((1,1000000), 1.1)",
           {"direct": "100.000022165", "expanded": "118.337441243"}, True, ("expanded distance",)),
    # -- scans
    Report("pytorch-156018", "cumprod", "float16", {"fill": 6.5}, {"CPU": ["6.5", "42.25", "274.5", "1785.0"],
           "CUDA": ["6.5", "42.25", "274.5", "1784.0"]}, True, (LOW,), shapes=[[4]]),
    Report("pytorch-180150", "cumsum", "float16", "torch seed 0: randn(500000)",
           {"CPU max error": "0.50529", "GPU max error": "5.5936"}, True, (LOW,)),
    Report("pytorch-180153", "cumsum", "float32", "torch seed 0: randn(10000)*1e10",
           {"CPU error norm": "0.0", "GPU error norm": "6224200.0"}, True, (ORDER, "wider accumulator")),
    # Collected as not explained, from one running product, which errs by 4e-5. CUB's scan of 15 factors a thread errs by
    # 0.00548: beside 1 a product is half way between two numbers, and the term that decides is negative, so that
    # rounding has a bias where threads multiply few factors.
    Report("pytorch-180154", "cumprod", "float32", "torch seed 0: 1+0.0001*randn(1000000)",
           {"CPU max error": "5.9604e-08", "GPU max error": "0.0054827"}, True, (ORDER,)),
    Report("pytorch-180155", "cumprod", "bfloat16", "torch seed 0: abs(randn(1000))*0.01+0.99",
           {"CPU error norm": "0.016893", "GPU error norm": "0.56472"}, True, (LOW,)),
    Report("pytorch-75240", "cumsum", "float32", "frac(arange(1000000)*pi)",
           {"max run-to-run difference": "0.2188", "first differing index": "38400"}, True, ("nondeterministic order",)),
    # -- elementwise functions
    Report("drake-10253", "compare", "float64", [[-5e-324]], {"one link mode": "1", "the other": "0"}, False,
           ("subnormal numbers flushed to zero (FTZ/DAZ)",)),
    Report("mlx-4157", "sin", "float32", [[1e9, 1e10]], {"MLX": ["13.287261009216309", "-inf"], "NumPy": ["0.54584348", "-0.48750603"]},
           False, ("fault",)),
    Report("numpy-18371", "log", "float64", [[0.8181818181818182]],
           {"1.19.5": "-0.2006706954621511", "1.20.0": "-0.20067069546215108"}, True, (LIBRARY,)),
    Report("numpy-21859", "log", "float64", [[math.e]], {"1.22.4": "1.0", "1.23.0": "0.9999999999999999"}, True, (LIBRARY,)),
    Report("oneflow-6917", "pow", "float32", [[-3.0, 2.5], [2.0, 2.0]], {"GPU": ["nan", "6.25"], "CPU": ["9.0", "6.25"]}, False,
           ("power by exp2(y*log2(x))",)),
    Report("tensorflow-102771", "reciprocal", "float32", {"x": "ones"},
           {"graph": ["0.99999994"] * 8 + ["1.0"] * 2, "eager": ["1.0"] * 10}, True, ("approximate division",), shapes=[[10]]),
    Report("xla-37181", "division", "float32", [[3163.328613], [3163.328613]], {"GPU": "0.999999940395355", "CPU": "1.0"}, True,
           ("approximate division",)),
    # -- compositions
    Report("mxnet-14357", "batch norm running variance", "float32", {"x": [0, 0, 0]}, {"CPU": "1.0", "GPU": "2.6561329e-05"}, False,
           ("update not applied",), {"momentum": 0.9, "steps": 100}),
    Report("onnxruntime-29034", "RMS norm", "float16", "full((1,4096), 20000)", {"CUDA": ["0", "0"], "strict": ["1", "1"]}, False,
           ("intermediate out of range",)),
    Report("pytorch-158310", "log-softmax", "float16", [[-19776.0, -19888.0]], {"CPU": ["-inf", "-inf"], "GPU": ["0", "-112"]}, False,
           ("intermediate out of range",)),
    Report("pytorch-159309", "instance norm", "float16", [[[[[1.2, 2.3], [3.4, 4.5]], [[5.6, 6.7], [7.8, 8.9]]]]],
           {"CPU": [["-1.3408", "-0.4463", "0.4478", "1.3418"], ["-1.3408", "-0.448", "0.448", "1.3408"]],
            "GPU": [["-1.3418", "-0.4468", "0.4473", "1.3418"], ["-1.3418", "-0.4482", "0.4482", "1.3418"]]}, True,
           ("statistics kept in low precision",), {"eps": 1e-5}),
    Report("tensorflow-34062", "batch norm", "float32", {"x": [0.0], "n_per_channel": 1}, {"GPU": "nan", "CPU": "0.99"}, False,
           ("0/0 for a single element",), {"momentum": 0.99, "steps": 1}),
    # -- other operations
    Report("pytorch-4419", "linspace", "float32", {"start": 0, "end": 8198, "steps": 4100}, {"element 4095": "8189.9995"}, True,
           ("another formula for the points",)),
    Report("pytorch-44662", "finite difference", "float32", {"eps": 1e-6}, {"numerical": "0.4768", "analytical": "0.1667"}, True,
           ("finite difference below the resolution",)),
    Report("pytorch-5351", "finite difference", "float32", {"eps": 1e-6},
           {"numerical": ["-0.3576", "0.2682"], "analytical": ["-0.3512", "0.2667"]}, True, ("finite difference below the resolution",)),
    Report("tensorflow-19200", "convolution", "float32", "concatenate([full((8,8), 12/384), full((12,8), 1.0)]), ones((8,8))", {"CPU": "2.0", "GPU": "1.9999084"}, True,
           ("transform convolution",)),
    Report("sklearn-17944", "kmeans inertia", "float64", None, {"labels": "not constant over 100 fits"}, None, ("nondeterministic order",)),
    Report("tensorflow-117663", "convolution", "float32", None, {"max absolute": "0.0001598", "max relative": "780.9"}, None, (OPERANDS,)),
)  # fmt: skip
