"""The marks of all tests, in one place: ``tests/conftest.py`` gives them.

An entry is a folder, a file, a function, or one case of it.  ``make test`` runs the smoke jobs and what has
no mark, ``make test-jobs`` the jobs, ``make test-slow`` what is slow, ``make test-all`` everything.
``tests/support/launching.py`` starts no ranks for a test that is not a job, so none can be missing here.
"""

from __future__ import annotations

# Tests that start ranks, processes that signals end, and scripts of batch jobs.
JOBS = (
    "bench/test_serving.py::test_rounds_are_timed_by_all_ranks_that_may_average",
    "bench/test_train.py::test_every_contestant_takes_its_steps",
    "bench/test_train.py::test_our_dense_mean_trains_as_torch_s_does",
    "cli/test_cli.py::test_each_task_of_an_array_has_a_seed_and_a_folder_of_its_own",
    "cli/test_observation.py::test_an_error_of_a_callback_ends_all_ranks_with_its_traceback",
    "cli/test_observation.py::test_rows_samples_and_the_starting_point",
    "cli/test_own_classes.py::test_a_run_and_its_resume_on_other_ranks",
    "cli/test_own_classes.py::test_an_import_that_raises_is_reported_once",
    "cli/test_own_classes.py::test_one_rank_reports_it_where_the_user_starts_the_ranks",
    "cli/test_unreadable.py::test_ranks_say_it_once",
    "cluster",
    "data/test_files.py::test_two_ranks_and_one_process_have_the_same_iterates",
    "embedded/test_ranks.py",
    "examples/test_examples.py",
    "experiment/test_start.py::test_on_ranks_it_is_the_same",
    "imaging/test_training.py::test_on_two_ranks_the_model_is_the_same",
    "kernels/test_store.py::test_ranks_forgo_the_kernels_together_and_say_so_once",
    "mpi",
    "problems/test_own_objectives.py::test_ranks_end_together_and_name_the_objective",
    "runtime/test_faults.py::test_a_broadcast_that_one_rank_receives_differently_ends_all",
    "runtime/test_faults.py::test_a_mpirun_that_does_not_end_is_killed_and_no_file_of_its_ranks_is_left",
    "runtime/test_faults.py::test_a_rank_that_has_left_is_missed_at_the_start_of_a_run",
    "runtime/test_faults.py::test_a_silent_rank_is_named_and_the_job_ended",
    "runtime/test_faults.py::test_a_silent_server_is_reported_by_one_rank",
    "runtime/test_faults.py::test_a_struck_rank_ends_the_job_which_can_be_resumed",
    "runtime/test_faults.py::test_a_struck_rank_of_those_that_all_serve",
    "runtime/test_faults.py::test_neither_rank_nor_file_outlives_a_killed_mpirun",
    "runtime/test_faults.py::test_no_rank_outlives_a_killed_command",
    "runtime/test_interrupts_of_scripts.py",
    "runtime/test_losses.py::test_a_garbled_broadcast_that_no_death_is_behind_ends_the_job",
    "runtime/test_losses.py::test_a_job_that_has_lost_ranks_is_refused_a_second_run",
    "runtime/test_losses.py::test_an_error_that_a_death_is_behind_is_survived_whatever_it_says",
    "runtime/test_losses.py::test_an_mpi_without_ulfm_is_refused_at_the_start",
    "runtime/test_losses.py::test_the_others_go_on_when_a_rank_is_killed",
    "runtime/test_losses.py::test_without_the_server_or_before_the_run_has_begun_the_job_ends",
    "runtime/test_serving.py::test_a_gradient_that_is_not_finite_ends_the_run_once",
    "runtime/test_serving.py::test_allreduce_on_ranks_ends_alike_everywhere",
    "runtime/test_serving.py::test_begun_on_three_ranks_and_resumed_on_two",
    "runtime/test_serving.py::test_ranks_beyond_the_blocks_serve_none_and_follow",
    "runtime/test_serving.py::test_the_busiest_rank_does_not_carry_all",
    "runtime/test_serving.py::test_what_allreduce_is_handed_is_what_mpi_counts",
    "runtime/test_serving.py::test_what_allreduce_is_handed_of_factors_is_what_mpi_counts",
    "runtime/test_signals.py",
    "test_follow.py::test_on_ranks_one_of_them_writes",
    "torch/test_buffers.py::test_models_with_other_buffers_on_another_rank_are_refused",
    "torch/test_hook_ranks.py",
    "torch/test_ranks.py",
    "transports/test_device_buffers.py::test_iterates_and_bytes_are_those_of_the_host",
    "transports/test_device_buffers.py::test_mpi_is_given_a_buffer_once_nothing_is_under_way_on_the_device",
    "transports/test_device_buffers.py::test_no_message_is_copied_to_the_host_or_back",
    "transports/test_device_buffers.py::test_the_record_says_where_messages_were",
    "transports/test_device_buffers.py::test_what_fails_is_said_once_and_every_rank_ends",
    "transports/test_mpi.py",
    "transports/test_observers.py",
)

# Jobs that `make test` runs too: bits and bytes, a resume, an error, a loss, a signal.
SMOKE = (
    "embedded/test_ranks.py::test_a_program_that_does_not_import_mpi_has_a_worker_for_each_rank",
    "runtime/test_losses.py::test_an_error_that_a_death_is_behind_is_survived_whatever_it_says[bytes]",
    "runtime/test_serving.py::test_begun_on_three_ranks_and_resumed_on_two[marina(randk(k=3), gamma=0.05)]",
    "runtime/test_signals.py::test_two_signals_at_once_are_one_request[2]",
    "transports/test_mpi.py::test_a_killed_rank_ends_the_job[2]",
    "transports/test_mpi.py::test_a_message_of_the_wrong_length_is_refused_once_and_every_rank_ends[short-truncated-4]",
    "transports/test_mpi.py::test_a_user_error_is_said_once_and_every_rank_ends",
    "transports/test_mpi.py::test_every_method_and_compressor_gives_the_same_bits_and_bytes[2-sharded-4]",
    "transports/test_mpi.py::test_every_method_and_compressor_gives_the_same_bits_and_bytes[4-observed]",
    "transports/test_mpi.py::test_the_command_starts_ranks_itself_or_finds_itself_on_them",
)

# Statistics, rates, compiling, and every combination of what is tested one by one elsewhere.
SLOW = (
    "bench/test_bench.py::test_the_command_prints_an_object_a_line",
    "bench/test_images.py::test_the_command",
    "bench/test_images.py::test_the_rows_are_the_sizes",
    "bench/test_train.py",
    "compressors/test_moments.py::test_alpha_bounds_the_error",
    "compressors/test_moments.py::test_delta_bounds_the_error",
    "compressors/test_moments.py::test_mean_nbytes_is_the_mean_length",
    "compressors/test_moments.py::test_omega_bounds_the_variance",
    "compressors/test_moments.py::test_the_ab_inequality",
    "compressors/test_moments.py::test_unbiased",
    "data/test_data.py::test_processes_that_meet_an_empty_cache_at_once_agree",
    "embedded/test_aggregator.py::test_a_descent_of_every_pair_is_the_run",
    "embedded/test_aggregator.py::test_estimate_and_step_of_every_pair_are_the_run",
    "embedded/test_overlap.py::test_blocks_of_every_compressor_that_leave_early_are_the_same",
    "kernels/test_cuda_sources.py::test_the_sources_compile",
    "kernels/test_store.py",
    "methods/test_adiana.py::test_adiana_converges_linearly_by_theory",
    "methods/test_adiana_convex.py::test_the_rate_is_the_theorems",
    "methods/test_arctopk.py::test_it_converges_linearly_on_heterogeneous_quadratics_with_theory_s_step",
    "methods/test_arctopk.py::test_noise_is_averaged_over_workers",
    "methods/test_bidirectional.py::test_theory_steps_contract_linearly",
    "methods/test_bidirectional.py::test_they_reach_the_optimum",
    "methods/test_dasha.py::test_dasha_converges_linearly",
    "methods/test_dasha_batches.py::test_dasha_on_batches_reaches_the_rate_of_its_theorem",
    "methods/test_dasha_batches.py::test_dashamvr_reaches_the_rate_of_its_theorem",
    "methods/test_ef21.py::test_converges_linearly_at_the_step_of_its_theorem",
    "methods/test_ef21.py::test_ef21sgd_keeps_a_bias_that_no_number_of_workers_removes_and_momentum_does",
    "methods/test_ef21p.py::test_ef21p_converges_linearly",
    "methods/test_efsgd.py::test_efsgd_reaches_the_rate_of_its_bound",
    "methods/test_marina.py::test_online_vrmarina_reaches_the_rate_of_its_theorem",
    "methods/test_marina.py::test_ppmarina_converges_linearly_where_f_is_strongly_convex",
    "methods/test_marina.py::test_vrmarina_and_ppmarina_reach_the_rate_of_their_theorem",
    "methods/test_methods.py::test_agd_contracts_with_the_root_of_the_condition_number",
    "methods/test_methods.py::test_diana_contracts_linearly",
    "methods/test_methods.py::test_diana_learns_the_gradients_at_the_optimum",
    "methods/test_methods.py::test_ef21_reaches_the_rate_of_its_theorem",
    "methods/test_methods.py::test_marina_reaches_the_rate_of_its_theorem",
    "methods/test_pl.py",
    "methods/test_saddle.py::test_powersgd_converges_where_ef14_with_the_same_rank_does_not",
    "methods/test_saddle.py::test_with_noise_it_escapes_to_a_minimum",
    "methods/test_saddle.py::test_without_noise_it_stays_at_a_saddle_for_ever",
    "methods/test_shifts.py::test_dianas_lyapunov_function_decreases",
    "methods/test_shifts.py::test_vrdianas_lyapunov_function_decreases",
    "methods/test_smoothness.py::test_diana_plus_learns_the_gradients_at_the_optimum",
    "methods/test_smoothness_steps.py::test_adiana_plus_converges_linearly_by_theory",
    "methods/test_smoothness_steps.py::test_dcgd_plus_contracts_to_a_neighbourhood",
    "methods/test_smoothness_steps.py::test_diana_plus_contracts_linearly",
    "methods/test_twodirection.py::test_twodirection_converges_linearly",
    "methods/test_variance.py::test_methods_on_batches_that_reduce_variance_reach_the_optimum_and_others_do_not",
    "methods/test_vrdiana.py::test_vrdiana_contracts_linearly",
    "methods/test_whitening.py::test_the_error_is_that_of_the_norm_of_the_matrix",
    "methods/test_whitening.py::test_unbiased_on_the_range",
    "problems/test_batches.py::test_batches_are_unbiased",
    "runtime/test_device.py::test_every_pair_of_them_does_on_the_device_what_it_does_on_the_host",
    "runtime/test_faults.py::test_a_wrong_byte_is_refused_or_decoded_but_never_a_crash",
    "test_keys.py::test_inclusion_in_a_random_subset_is_uniform",
    "test_keys.py::test_inclusion_of_pairs_in_a_random_subset_is_uniform",
    "transports/test_mpi.py::test_every_pair_of_them_gives_the_same_bits_and_bytes",
)

# Functions whose cases are all combinations of problems, placements and compressors: of each, the first case
# and every fifth after it are in `make test`, and the others are slow.
PRODUCTS = (
    "methods/test_dasha.py::test_dasha_is_its_transcription",
    "methods/test_dasha_batches.py::test_dashamvr_is_its_transcription",
    "methods/test_dasha_batches.py::test_dashapage_is_its_transcription",
    "methods/test_doublesqueeze.py::test_dore_is_its_transcription",
    "methods/test_doublesqueeze.py::test_doublesqueeze_is_its_transcription",
    "methods/test_ef21.py::test_ef21plus_is_its_transcription",
    "methods/test_ef21.py::test_ef21sgd2m_is_its_transcription",
    "methods/test_ef21.py::test_ef21sgdm_is_its_transcription",
    "methods/test_ef21.py::test_g_is_the_mean_of_g_i_for_every_compressor",
    "methods/test_ef21.py::test_without_momentum_it_is_ef21",
    "methods/test_ef21p.py::test_ef21p_is_its_transcription",
    "methods/test_efsgd.py::test_ef14sgd_is_its_transcription",
    "methods/test_efsgd.py::test_efsgd_is_its_transcription",
    "methods/test_efsgd.py::test_virtual_iterate_for_every_compressor",
    "methods/test_marina.py::test_vrmarina_is_its_transcription",
    "methods/test_marina.py::test_vrmarina_with_whole_batches_is_marina",
    "methods/test_methods.py::test_dcgd_is_its_transcription",
    "methods/test_methods.py::test_diana_is_its_transcription",
    "methods/test_methods.py::test_ef14_is_its_transcription",
    "methods/test_methods.py::test_ef21_is_its_transcription",
    "methods/test_methods.py::test_marina_is_its_transcription",
    "methods/test_saddle.py::test_perturbed_sgd_is_its_transcription",
    "methods/test_saddle.py::test_the_virtual_iterate_for_every_compressor",
    "methods/test_smoothness.py::test_adiana_plus_is_its_transcription",
    "methods/test_smoothness.py::test_dcgd_plus_is_its_transcription",
    "methods/test_smoothness.py::test_diana_plus_is_its_transcription",
    "methods/test_smoothness.py::test_h_is_the_mean_of_h_i",
    "methods/test_smoothness.py::test_where_every_matrix_is_a_multiple_of_the_identity_nothing_is_whitened",
    "methods/test_twodirection.py::test_twodirection_is_its_transcription",
)
STRIDE = 5

MARKS = {"jobs": JOBS, "smoke": SMOKE, "slow": SLOW}


def marks_of(nodeid: str, number: int = 0) -> set[str]:
    """The marks of a test, by its node's id, and by the number of the case among those of its function."""
    case = nodeid.removeprefix("tests/")
    function, file = case.partition("[")[0], case.partition("::")[0]
    named = {case, function, file, file.partition("/")[0]}
    marks = {mark for mark, entries in MARKS.items() if not named.isdisjoint(entries)}
    return marks | {"slow"} if function in PRODUCTS and number % STRIDE else marks
