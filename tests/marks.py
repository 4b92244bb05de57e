"""The marks of all tests, in one place: ``tests/conftest.py`` gives them.

An entry is a folder, a file, a function, or one case of it.  ``make test`` runs the unmarked and the smoke
jobs, ``make test-jobs`` the jobs, ``make test-slow`` what is slow, ``make test-all`` everything.
``tests/support/launching.py`` starts no ranks for a test that is not a job, so none can be missing here.
"""

from __future__ import annotations

# Tests that start ranks.
JOBS = (
    "tests/cluster",
    "tests/mpi",
    "tests/cli/test_observation.py::test_an_error_of_a_callback_ends_all_ranks_with_its_traceback",
    "tests/cli/test_own_classes.py::test_one_rank_reports_it_where_the_user_starts_the_ranks",
    "tests/cli/test_unreadable.py::test_ranks_say_it_once",
    "tests/data/test_files.py::test_two_ranks_and_one_process_have_the_same_iterates",
    "tests/embedded/test_ranks.py",
    "tests/examples/test_examples.py",
    "tests/kernels/test_store.py::test_ranks_forgo_the_kernels_together_and_say_so_once",
    "tests/problems/test_own_objectives.py::test_ranks_end_together_and_name_the_objective",
    "tests/runtime/test_faults.py::test_a_struck_rank_ends_the_job_which_can_be_resumed",
    "tests/runtime/test_faults.py::test_a_struck_rank_of_those_that_all_serve",
    "tests/runtime/test_faults.py::test_a_silent_rank_is_named_and_the_job_ended",
    "tests/runtime/test_faults.py::test_a_silent_server_is_reported_by_one_rank",
    "tests/runtime/test_faults.py::test_a_rank_that_has_left_is_missed_at_the_start_of_a_run",
    "tests/runtime/test_faults.py::test_a_broadcast_that_one_rank_receives_differently_ends_all",
    "tests/runtime/test_interrupts_of_scripts.py::test_all_ranks_are_interrupted_at_the_same_call_and_their_handlers_run",
    "tests/runtime/test_interrupts_of_scripts.py::test_without_an_aggregator_each_rank_is_interrupted_where_it_is",
    "tests/runtime/test_interrupts_of_scripts.py::test_a_second_request_ends_a_script_that_goes_on",
    "tests/runtime/test_interrupts_of_scripts.py::test_an_error_is_said_once_and_last",
    "tests/runtime/test_losses.py::test_the_others_go_on_when_a_rank_is_killed",
    "tests/runtime/test_losses.py::test_without_the_server_or_before_the_run_has_begun_the_job_ends",
    "tests/runtime/test_serving.py::test_allreduce_on_ranks_ends_alike_everywhere",
    "tests/runtime/test_signals.py::test_a_request_to_end_saves_the_run",
    "tests/runtime/test_signals.py::test_two_signals_at_once_are_one_request",
    "tests/runtime/test_signals.py::test_a_run_that_is_to_survive_its_terminal_does",
    "tests/runtime/test_signals.py::test_a_second_request_ends_a_gradient_that_hangs",
    "tests/runtime/test_signals.py::test_a_signal_ends_a_script_once_its_run_is_saved",
    "tests/runtime/test_signals.py::test_a_request_ends_a_download_that_is_stalled",
    "tests/runtime/test_signals.py::test_a_request_ends_a_benchmark",
    "tests/runtime/test_signals.py::test_a_request_ends_what_prepares_a_comparison",
    "tests/torch/test_buffers.py::test_models_with_other_buffers_on_another_rank_are_refused",
    "tests/torch/test_hook_ranks.py",
    "tests/torch/test_ranks.py::test_fixed_workers_give_the_same_bits_on_any_number_of_ranks",
    "tests/torch/test_ranks.py::test_saved_and_loaded_on_another_number_of_ranks_is_uninterrupted",
    "tests/torch/test_ranks.py::test_closures_of_fixed_workers_give_the_same_bits_on_any_number_of_ranks",
    "tests/torch/test_ranks.py::test_gradients_that_leave_early_give_the_same_bits_and_bytes",
    "tests/torch/test_ranks.py::test_what_has_left_early_is_forgotten_where_a_gradient_is_bad",
    "tests/torch/test_ranks.py::test_without_compression_it_is_ddp_up_to_rounding",
    "tests/torch/test_ranks.py::test_the_hook_is_the_optimiser",
    "tests/torch/test_ranks.py::test_the_hook_goes_on_from_what_it_saved",
    "tests/torch/test_ranks.py::test_the_hook_refuses_what_another_method_saved",
    "tests/torch/test_ranks.py::test_an_overflow_on_one_rank_is_left_out_on_all",
    "tests/torch/test_ranks.py::test_local_steps_end_alike_on_all_ranks",
    "tests/torch/test_ranks.py::test_a_server_without_a_worker",
    "tests/torch/test_ranks.py::test_one_bad_gradient_is_said_by_all",
    "tests/torch/test_ranks.py::test_what_differs_between_ranks_is_said",
    "tests/torch/test_ranks.py::test_what_is_alike_passes",
    "tests/torch/test_ranks.py::test_what_is_outside_the_module_is_shared_too",
    "tests/torch/test_ranks.py::test_buffers_that_do_not_change_are_not_sent",
    "tests/torch/test_ranks.py::test_parameters_that_differ_are_refused",
    "tests/transports/test_device_buffers.py::test_iterates_and_bytes_are_those_of_the_host",
    "tests/transports/test_device_buffers.py::test_no_message_is_copied_to_the_host_or_back",
    "tests/transports/test_device_buffers.py::test_mpi_is_given_a_buffer_once_nothing_is_under_way_on_the_device",
    "tests/transports/test_device_buffers.py::test_the_record_says_where_messages_were",
    "tests/transports/test_device_buffers.py::test_what_fails_is_said_once_and_every_rank_ends",
    "tests/transports/test_mpi.py::test_every_method_and_compressor_gives_the_same_bits_and_bytes",
    "tests/transports/test_mpi.py::test_a_stop_and_an_error_go_through_trees",
    "tests/transports/test_mpi.py::test_the_command_starts_ranks_itself_or_finds_itself_on_them",
    "tests/transports/test_mpi.py::test_the_server_holds_few_messages_at_a_time",
    "tests/transports/test_mpi.py::test_an_unexpected_exception_ends_the_job_with_its_traceback",
    "tests/transports/test_mpi.py::test_a_gradient_that_is_not_finite_is_reported_once_with_worker_and_round",
    "tests/transports/test_mpi.py::test_what_fails_on_one_rank_ends_all",
    "tests/transports/test_mpi.py::test_a_message_of_the_wrong_length_is_refused_once_and_every_rank_ends",
    "tests/transports/test_mpi.py::test_a_full_disk_ends_the_run_on_every_rank_and_keeps_the_rows",
    "tests/transports/test_mpi.py::test_a_script_that_fails_outside_a_run_ends_the_job",
    "tests/transports/test_mpi.py::test_the_starting_point_is_the_servers",
    "tests/transports/test_mpi.py::test_a_killed_rank_ends_the_job",
    "tests/transports/test_mpi.py::test_a_user_error_is_said_once_and_every_rank_ends",
    "tests/transports/test_mpi.py::test_ranks_without_a_worker_are_mentioned_once",
    "tests/transports/test_mpi.py::test_a_signal_ends_the_run_in_good_order_and_it_resumes_on_other_ranks",
    "tests/transports/test_mpi.py::test_control_c_reaches_ranks_that_the_command_started",
    "tests/transports/test_mpi.py::test_ending_the_command_ends_its_ranks",
    "tests/transports/test_mpi.py::test_a_batch_system_may_ask_every_process_to_end",
    "tests/transports/test_mpi.py::test_a_comparison_that_is_asked_to_stop_says_how_to_go_on",
    "tests/transports/test_observers.py::test_ranks_started_by_hand_and_a_dedicated_server",
    "tests/transports/test_observers.py::test_an_interrupted_run_and_what_a_resumed_one_adds_are_verified",
    "tests/transports/test_observers.py::test_a_transport_that_cheats_is_found_out",
    "tests/transports/test_observers.py::test_what_a_run_is_measured_by_is_not_counted",
    "tests/transports/test_observers.py::test_every_way_to_send_is_seen",
    "tests/transports/test_observers.py::test_monitoring_and_shim_see_the_same",
    "tests/transports/test_observers.py::test_what_cannot_be_observed_is_refused",
)

# Jobs that `make test` runs too: bits and bytes, the command, an error, a loss, a signal, a resumed run.
SMOKE = ()

# Statistics, rates, compiling, and every combination of things that are tested one by one elsewhere.
SLOW = ()

MARKS = {"jobs": JOBS, "smoke": SMOKE, "slow": SLOW}


def marks_of(nodeid: str) -> set[str]:
    """The marks of a test, by its node's id."""
    function, file = nodeid.partition("[")[0], nodeid.partition("::")[0]
    folders = {file.rsplit("/", n)[0] for n in range(1, file.count("/") + 1)}
    return {mark for mark, of in MARKS.items() if not {nodeid, function, file, *folders}.isdisjoint(of)}
