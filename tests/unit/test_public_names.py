"""The public names: few, and changed only on purpose."""

import bonafed
import bonafed.economics
import bonafed.mechanisms.sampling

TOP = """BonafedError Discrete Empirical InvalidValue NoSolution NormalMixture ReportRefused ScaledBeta
TruncatedExponential TruncatedNormal Uniform UnreadableFile __version__ audit from_scipy"""
ECONOMICS = """Allocation AuditReport Discrete Empirical Finding IronedInterval Menu NormalMixture Prior
ScaledBeta Settlement TruncatedExponential TruncatedNormal Uniform Witness audit from_scipy menu_from_json
prior_from_json"""
SAMPLING = """Benchmark CompleteInformation ConvergenceModel PriorFreeRun PriorFreeSampling PriorFreeState
SamplingPlan SpendDistribution benchmarks complete_information complete_information_population
contract_from_json contract_to_json exceedance_bound known_lotteries optimal_menu plan read_contract
save_contract spend_distribution uniform_menu verify"""


def test_public_names_are_as_listed():
    for module, names in (
        (bonafed, TOP),
        (bonafed.economics, ECONOMICS),
        (bonafed.mechanisms.sampling, SAMPLING),
    ):
        assert sorted(module.__all__) == sorted(names.split())
        assert all(hasattr(module, name) for name in module.__all__)
