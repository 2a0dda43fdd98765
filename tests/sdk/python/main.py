# SPDX-License-Identifier: Apache-2.0
"""main.py sync|async [NAME...]: run the checks (those whose names begin so) against what the environment says."""
import kit

import check_commands  # noqa: F401
import check_background  # noqa: F401
import check_stdin  # noqa: F401
import check_pty  # noqa: F401
import check_files  # noqa: F401
import check_dirs  # noqa: F401
import check_watch  # noqa: F401
import check_git  # noqa: F401
import check_errors  # noqa: F401
import check_urls  # noqa: F401
import check_control  # noqa: F401
import check_lifecycle  # noqa: F401
import check_snapshot  # noqa: F401
import check_refused  # noqa: F401

kit.main()
