import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { type Agent, startAgent } from './agent.js'
import { runFetcher } from './ocsp/fetcher.js'
import { limitHeap } from './process/heap.js'
import { bootSchema } from './protocol/boot.js'
import { BOOT_FILE } from './protocol/paths.js'
import { askSelf } from './server/ask-self.js'
import { runAssembler } from './tls/assembler.js'
import { CHECK_OPTION, printCheck } from './upgrade/check.js'
import { ownBundle } from './upgrade/own-bundle.js'
import { beginTrial } from './upgrade/trial.js'

/** How long an agent on trial may take to adopt what runs before its answer counts anyway. */
const RESUME_MS = 10_000
const ASK_PAUSE_MS = 500

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { boot: { type: 'string', default: BOOT_FILE }, [CHECK_OPTION]: { type: 'boolean', default: false } },
  })
  const boot = bootSchema.parse(JSON.parse(readFileSync(values.boot, 'utf8')))
  if (values[CHECK_OPTION]) return printCheck(boot)
  const bundle = ownBundle()
  const endTrial = beginTrial(bundle)
  let stopping = false
  const stop = (agent: Agent) => {
    if (stopping) return
    stopping = true
    agent.stop().then(
      () => process.exit(0),
      () => process.exit(1),
    )
  }
  limitHeap()
  const agent = await startAgent(boot, { bundle, bootFile: values.boot, restart: () => stop(agent) })
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(agent))
  await Promise.race([agent.idle(), sleep(RESUME_MS, undefined, { ref: false })])
  while (!stopping && !(await askSelf())) await sleep(ASK_PAUSE_MS)
  if (!stopping) endTrial()
}

if (!runAssembler() && !runFetcher(process.argv.slice(2))) {
  main().catch(error => {
    console.error(`amphora agent: ${error instanceof Error ? error.message : String(error)}`)
    process.exit(1)
  })
}
