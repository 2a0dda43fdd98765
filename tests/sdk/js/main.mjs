// SPDX-License-Identifier: Apache-2.0
// main.mjs [NAME...]: run the checks (those whose names begin so) against what the environment says.
import { main } from './kit.mjs'
import './check_commands.mjs'
import './check_background.mjs'
import './check_pty.mjs'
import './check_files.mjs'
import './check_dirs.mjs'
import './check_watch.mjs'
import './check_errors.mjs'
import './check_urls.mjs'
import './check_control.mjs'
import './check_lifecycle.mjs'
import './check_snapshot.mjs'
import './check_refused.mjs'

await main(process.argv.slice(2))
