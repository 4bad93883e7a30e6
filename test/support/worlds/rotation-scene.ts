import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Database } from '../../../controller/database/connection.js'
import { createKeyring, type Keyring } from '../../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../../controller/key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../../controller/key-manager/crypto/simple/backend.js'
import { readMasterKeys, writeMasterKeys } from '../../../controller/key-manager/crypto/simple/master-keys.js'
import { startTestKeyManager, type TestKeyManager } from '../clients/key-manager-api.js'

const program = join(import.meta.dirname, '../../../dist/krater.js')

export type RotationScene = TestKeyManager & {
  masterKeyFile: string
  /** Runs `krater key-manager ...` on the same database and master key. */
  command: (...words: string[]) => Promise<{ status: number | null; text: string }>
  start: (...words: string[]) => ChildProcess
  /** As a process that starts now would get it. */
  freshKeyring: () => Promise<Keyring>
}

/** The key manager's API and its command line over one database and one file with the master key. */
export async function createRotationScene(t: Test, masterKey: Buffer): Promise<RotationScene> {
  const directory = t.testdir({})
  const masterKeyFile = join(directory, 'keys/key-manager-master')
  mkdirSync(join(directory, 'keys'))
  writeMasterKeys(masterKeyFile, [masterKey])
  const source = { kind: 'file', path: masterKeyFile } as const
  const openKeyring = async (database: Database): Promise<Keyring> => {
    const backend = createSimpleCrypto({
      ...{ origin: masterKeyFile, remedy: '', keys: await readMasterKeys(source) },
      reread: () => readMasterKeys(source),
    })
    await requireMasterKeys(database, backend)
    return createKeyring(database, [backend])
  }
  const manager = await startTestKeyManager({}, undefined, openKeyring)
  t.teardown(manager.stop)
  writeFileSync(join(directory, 'krater.yaml'), `database: { key_manager: "${manager.databaseUrl}" }\n`, {
    mode: 0o600,
  })

  const start: RotationScene['start'] = (...words) => {
    const child = spawn(process.execPath, [program, '--state-dir', directory, 'key-manager', ...words], {
      env: { PATH: process.env.PATH },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    t.teardown(() => child.kill('SIGKILL'))
    return child
  }
  return {
    ...manager,
    masterKeyFile,
    start,
    command: async (...words) => {
      const child = start(...words)
      let text = ''
      for (const stream of [child.stdout, child.stderr]) {
        stream?.setEncoding('utf8').on('data', chunk => {
          text += chunk
        })
      }
      const [status] = (await once(child, 'close')) as [number | null]
      return { status, text }
    },
    freshKeyring: () => openKeyring(manager.database),
  }
}
