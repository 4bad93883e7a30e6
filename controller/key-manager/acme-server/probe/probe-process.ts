import { createInterface } from 'node:readline'
import { codeOf, probeHttp } from './http.js'
import { failed, type ProbeJob, type ProbeResult, parseProbeJob } from './job.js'
import { probeTls } from './tls.js'

/**
 * A process for one probe. It starts as root, as it is started in a network namespace, and has no rights left before it
 * reads its job: whatever answers it is hostile. It ends with its parent, and in any case in time.
 */
const NOBODY = 65_534
const LIFE_MS = 20_000

function dropRights(): void {
  if (process.getuid?.() !== 0) return
  process.setgroups?.([])
  process.setgid?.(NOBODY)
  process.setuid?.(NOBODY)
}

const carryOut = (job: ProbeJob): Promise<ProbeResult> => (job.kind === 'http' ? probeHttp(job) : probeTls(job))

function answer(result: ProbeResult): void {
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0))
}

dropRights()
setTimeout(() => process.exit(1), LIFE_MS)
const lines = createInterface({ input: process.stdin })
lines.once('line', line => {
  carryOut(parseProbeJob(JSON.parse(line))).then(answer, error => answer(failed('answer', codeOf(error))))
})
lines.once('close', () => process.exit(1))
process.stdout.write('ready\n')
