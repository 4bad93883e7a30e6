import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { startAgent } from './agent.js'
import { runFetcher } from './ocsp/fetcher.js'
import { bootSchema } from './protocol/boot.js'
import { BOOT_FILE } from './protocol/paths.js'
import { runAssembler } from './tls/assembler.js'

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { boot: { type: 'string', default: BOOT_FILE } } })
  const boot = bootSchema.parse(JSON.parse(readFileSync(values.boot, 'utf8')))
  const agent = await startAgent(boot)
  let stopping = false
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (stopping) return
      stopping = true
      agent.stop().then(
        () => process.exit(0),
        () => process.exit(1),
      )
    })
  }
}

if (!runAssembler() && !runFetcher(process.argv.slice(2))) {
  main().catch(error => {
    console.error(`amphora agent: ${error instanceof Error ? error.message : String(error)}`)
    process.exit(1)
  })
}
