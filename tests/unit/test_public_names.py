"""The public names: few, and changed only on purpose."""

import bonafed
import bonafed.economics
import bonafed.mechanisms.faithful
import bonafed.mechanisms.jsam
import bonafed.mechanisms.sampling

TOP = """BonafedError Discrete Empirical Finding InvalidValue NoSolution NormalMixture ReportRefused
ScaledBeta Statement TruncatedExponential TruncatedNormal Uniform UnreadableFile __version__ audit compare
faithful from_scipy jsam read_contract register rewards sampling train verify"""
ECONOMICS = """Allocation AuditReport Discrete Empirical Finding IronedInterval Menu NormalMixture Prior
ScaledBeta Settlement Statement TruncatedExponential TruncatedNormal Uniform Witness audit from_scipy
prior_from_json"""
SAMPLING = """Benchmark BenchmarkContract PriorFreeContract SamplingContract
CompleteInformation ConvergenceModel PriorFreeRun PriorFreeSampling PriorFreeState
SamplingPlan SpendDistribution benchmarks complete_information complete_information_population
contract contract_from_json contract_to_json exceedance_bound known_lotteries optimal_menu plan
prior_free_contract SettledTerms settle_contract settle_rules spend_distribution
uniform_menu verify"""
JSAM = """Admitted Budgeted Cheapest Fixed Jsam JsamContract JsamMechanism SelectionPlan
PrivacySettlement Rule Unequal admit allocate allocate_unequal complete_information
contract eta_for_budget eta_for_expected_budget largest_losses least_objective noise_scale objective
settle unbiased"""
FAITHFUL = """Aggregation FaithfulOutcome FederatedProblem Payments PrivateFaithfulPlan PrivateOutcome
PrivateTerms Problem ProtocolRules PublicFacts RidgeRegression SoftmaxRegression StepwiseTerms
calibrate cluster_count cluster_payments faithful minimise newton_payments pay plan_private
privacy_loss private_faithful random_clusters train vcg_payments"""


def test_public_names_are_as_listed():
    for module, names in (
        (bonafed, TOP),
        (bonafed.economics, ECONOMICS),
        (bonafed.mechanisms.sampling, SAMPLING),
        (bonafed.mechanisms.jsam, JSAM),
        (bonafed.mechanisms.faithful, FAITHFUL),
    ):
        assert sorted(module.__all__) == sorted(names.split())
        assert all(hasattr(module, name) for name in module.__all__)
