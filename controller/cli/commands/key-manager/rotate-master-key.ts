import { randomBytes } from 'node:crypto'
import { InvalidArgumentError, Option } from 'commander'
import type { Database } from '../../../database/connection.js'
import { type CryptoBackend, CryptoUnavailable } from '../../../key-manager/crypto/backend.js'
import {
  CRYPTO_BACKEND_NAMES,
  type CryptoBackendName,
  openCryptoBackend,
  storedNameOf,
} from '../../../key-manager/crypto/backends.js'
import { activeMasterKey, requireMasterKeys, WrongMasterKey } from '../../../key-manager/crypto/master-key.js'
import { createMasterKey, createPkcs11Crypto } from '../../../key-manager/crypto/pkcs11/backend.js'
import { openToken } from '../../../key-manager/crypto/pkcs11/open-token.js'
import { masterKeyId } from '../../../key-manager/crypto/simple/backend.js'
import { masterKeySource, readMasterKeys, writeMasterKeys } from '../../../key-manager/crypto/simple/master-keys.js'
import { LockTaken, withExclusiveLock } from '../../../key-manager/rotation/exclusive-lock.js'
import { keysUnderFormer, rotateMasterKey } from '../../../key-manager/rotation/master-key.js'
import { originOf } from '../../../options/secret-source.js'
import type { Command } from '../../command.js'
import { OperatorError, UsageError } from '../../operator-error.js'
import { print } from '../../terminal.js'
import { type Instance, openDatabase, openInstance } from '../../wiring/instance.js'
import { cryptoContext } from '../../wiring/key-manager/keyring.js'
import { progressLines } from './progress-lines.js'

const BACKENDS = CRYPTO_BACKEND_NAMES.join(' or ')

export const command: Command = {
  options: [
    new Option('--backend <name>', `${BACKENDS} (default: the first configured one)`).argParser(parseBackend),
    new Option('--label <label>', 'label of the new key in the token'),
    new Option('--prepare', 'only write the new key to the file, so that you can first copy it to other machines'),
  ],
  run: rotateMasterKeyNow,
}

export type RotateMasterKeyOptions = {
  backend?: CryptoBackendName
  /** Label of the new key in the token. */
  label?: string
  /** Only writes the new key beside the former one. */
  prepare?: boolean
}

type Rotation = { instance: Instance; database: Database; requireLock: () => Promise<void> }

/**
 * Replaces the master key of a back end while the key manager is in use. After an interruption, the next run continues.
 * @returns the exit status: 1 when some project keys cannot be unwrapped
 */
export async function rotateMasterKeyNow(directory: string, options: RotateMasterKeyOptions): Promise<number> {
  const instance = openInstance(directory)
  const { backends } = instance.config.key_manager.crypto
  const chosen = options.backend ?? backends[0]
  if (chosen === undefined || !backends.includes(chosen)) {
    throw new OperatorError(`The back end ${chosen} is not in key_manager.crypto.backends.`)
  }
  const database = openDatabase(instance, 'key_manager', 'rotation')
  try {
    return await withExclusiveLock(database, 'master key rotation', requireLock => {
      const rotation = { instance, database, requireLock }
      return ROTATIONS[chosen](rotation, options)
    })
  } catch (error) {
    throw explainRotationError(error)
  } finally {
    await database.destroy()
  }
}

/** Replaces the master key of each back end. */
const ROTATIONS: Readonly<
  Record<CryptoBackendName, (rotation: Rotation, options: RotateMasterKeyOptions) => Promise<number>>
> = { simple: rotateSimple, pkcs11: rotatePkcs11 }

/** Turns known failures of rotations into errors for the operator; returns other errors unchanged. */
export function explainRotationError(error: unknown): unknown {
  if (error instanceof LockTaken) {
    return new OperatorError('Another rotation of the master key is already running. This one changed nothing.')
  }
  if (error instanceof CryptoUnavailable) {
    return new OperatorError(
      `The rotation stopped: ${error.reason} Nothing is lost; run the same command again to continue.`,
    )
  }
  return error instanceof WrongMasterKey ? new OperatorError(error.message) : error
}

const SIMPLE = storedNameOf('simple')

async function rotateSimple({ instance, database, requireLock }: Rotation, { prepare }: RotateMasterKeyOptions) {
  const { crypto } = instance.config.key_manager
  const source = masterKeySource(crypto.simple, instance.directory)
  const open = () => openCryptoBackend('simple', crypto, cryptoContext(instance))
  await withBackend(await open(), backend => requireMasterKeys(database, backend))
  let keys = await readMasterKeys(source)
  const [newest] = keys
  const activeId = await activeMasterKey(database, SIMPLE)
  const isDone = newest !== undefined && masterKeyId(newest) === activeId
  const unfinished = keys.length > 1 || (await keysUnderFormer(database, SIMPLE)) > 0
  if (isDone && unfinished && source.kind === 'file') print('Continuing an interrupted rotation.')
  if (isDone && !(unfinished && source.kind === 'file')) {
    if (source.kind !== 'file') {
      throw new OperatorError(
        `The first key in ${originOf(source)} is already active. Put a new one (\`openssl rand -hex 32\`) before it, restart all processes of the key manager, then run this command again.`,
      )
    }
    keys = [randomBytes(32), ...keys]
    await requireLock()
    writeMasterKeys(source.path, keys)
  }
  if (prepare === true) {
    print(
      `The new master key and the former one are in ${originOf(source)}. Copy it to the other machines, then run this command without --prepare.`,
    )
    return 0
  }
  const status = await withBackend(await open(), backend => rewrapAll(database, backend, backend.firstMasterKeyId))
  const [current] = await readMasterKeys(source)
  if (status !== 0 || current === undefined) return status
  if (source.kind === 'file') {
    await requireLock()
    writeMasterKeys(source.path, [current])
    print(
      `Removed the former master key from ${source.path}. A database backup from before this rotation needs a backup of that file from before it. Copy the file to the other machines.`,
    )
  } else print(`You can now remove the former master key from ${originOf(source)}.`)
  return 0
}

async function rotatePkcs11(
  { instance, database }: Rotation,
  { label, prepare }: RotateMasterKeyOptions,
): Promise<number> {
  if (prepare === true) throw new UsageError('A rotation in a token takes no --prepare.')
  if (label === undefined)
    throw new UsageError('Name the new master key with --label. If it does not exist, it is created in the token.')
  const { pkcs11 } = instance.config.key_manager.crypto
  const { client, origin } = await openToken(pkcs11, cryptoContext(instance))
  return withBackend(createPkcs11Crypto(client, pkcs11.master_key_label, origin), async backend => {
    await requireMasterKeys(database, backend)
    if (await createMasterKey(client, label)) print(`Created the master key ${label} in ${origin}.`)
    const status = await rewrapAll(database, backend, label)
    if (status === 0)
      print('You can now delete the former master key from the token, but database backups from before need it.')
    return status
  })
}

async function rewrapAll(database: Database, backend: CryptoBackend, id: string): Promise<number> {
  const { report, seconds } = progressLines('project keys')
  const { done, unreadable } = await rotateMasterKey(database, backend, id, report)
  print(`The master key ${id} is active. Wrapped ${done} project keys with it in ${seconds().toFixed(1)} s.`)
  if (unreadable === 0) return 0
  print(`${unreadable} project keys cannot be unwrapped. They stay under the former master key, which is kept.`)
  return 1
}

async function withBackend<T>(backend: CryptoBackend, work: (backend: CryptoBackend) => Promise<T>): Promise<T> {
  try {
    return await work(backend)
  } finally {
    await backend.stop()
  }
}

function parseBackend(text: string): CryptoBackendName {
  const name = CRYPTO_BACKEND_NAMES.find(name => name === text)
  if (name === undefined) throw new InvalidArgumentError(`It must be ${BACKENDS}.`)
  return name
}
