import t from 'tap'

/** Runs test programs side by side, each in a process of its own, and prints what all of them say. Arguments: pairs of a file's name and its program. */

/** More than two cores have to do, for many tests wait: for leases, restarts, health checks. */
const JOBS = 3
const LIMIT_SECONDS = 900

t.jobs = JOBS
// Each file has its limit, the whole has none.
t.setTimeout(0)
const env = { ...process.env, TAP_TIMEOUT: String(LIMIT_SECONDS) }
const [, , ...words] = process.argv
for (let index = 0; index < words.length; index += 2) {
  const [name, program] = words.slice(index, index + 2)
  // The hooks that tap gives to what it starts serve its coverage only, and slow every import down.
  const node = ['-u', 'NODE_OPTIONS', process.execPath, '--enable-source-maps', program]
  t.spawn('env', node, { name, buffered: true, timeout: LIMIT_SECONDS * 1000, env })
}
