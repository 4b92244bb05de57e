"""Many runs: suites, tuning, their results, tables and figures."""
