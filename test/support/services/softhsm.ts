import { execFile } from 'node:child_process'
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import type { Test } from 'tap'
import type { TokenSettings } from '../../../controller/key-manager/crypto/pkcs11/calls.js'
import { CANARY } from '../canary.js'

const run = promisify(execFile)

export const SOFTHSM_LIBRARY = '/usr/lib/softhsm/libsofthsm2.so'

export type SoftToken = {
  label: string
  pin: string
  settings: TokenSettings
  /** The bundled process that holds a token, which starts much faster than from sources. */
  program: string
  /** For SoftHSM to find the token; this process's environment has it already. */
  environment: { SOFTHSM2_CONF: string }
  /** As if the token were pulled from its slot; reading it fails until it is put back. */
  remove: () => void
  insert: () => void
}

/** A SoftHSM token of the test, in its directory. */
export async function createSoftToken(t: Test): Promise<SoftToken> {
  const directory = t.testdir({})
  const tokens = join(directory, 'tokens')
  mkdirSync(tokens)
  const configuration = join(directory, 'softhsm2.conf')
  writeFileSync(configuration, `directories.tokendir = ${tokens}\nobjectstore.backend = file\nlog.level = ERROR\n`)
  const environment = { SOFTHSM2_CONF: configuration }
  // The tests’ record is searched for CANARY, and so for the PIN.
  const [label, pin] = ['krater test', CANARY]
  const words = ['--init-token', '--free', '--label', label, '--so-pin', '9999', '--pin', pin]
  await run('softhsm2-util', words, { env: { ...process.env, ...environment }, timeout: 20_000 })
  process.env.SOFTHSM2_CONF = configuration
  const program = join(directory, 'token-process.js')
  await build({
    entryPoints: [join(import.meta.dirname, '../../../controller/key-manager/crypto/pkcs11/token-process.ts')],
    ...{ outfile: program, bundle: true, platform: 'node', target: 'node20', format: 'esm', packages: 'external' },
  })
  return {
    label,
    pin,
    environment,
    program,
    settings: {
      libraryPath: SOFTHSM_LIBRARY,
      serialNumber: null,
      labels: [label],
      slotId: null,
      pin,
      wrapMechanism: 'CKM_AES_KEY_WRAP_PAD',
      keyCacheLimit: 100,
      keyCacheMilliseconds: 60_000,
    },
    remove: () => renameSync(tokens, `${tokens}-away`),
    insert: () => renameSync(`${tokens}-away`, tokens),
  }
}
