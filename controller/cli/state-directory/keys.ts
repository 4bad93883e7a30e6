import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import type { Configuration } from '../../config/schema.js'
import { type ChannelCertificate, createChannelCertificate } from '../../key-channel/keys.js'
import { masterKeySource } from '../../key-manager/crypto/simple/master-keys.js'
import { ConfigurationError } from '../../options/configuration-error.js'
import { makePrivateFile, writePrivateFile } from '../../process/private-file.js'
import { withTemporaryDirectory } from '../../process/temporary-directory.js'

const run = promisify(execFile)

/** Key files of an instance. */
export type KeyFiles = {
  amphoraMaster: string
  controllerSsh: string
  operatorSsh: string
  identityCredentials: string
  /** Null when the key manager's master key does not come from a file. */
  keyManagerMaster: string | null
  keyManagerAudit: string
  /** The key of the CA of the APIs' own certificates; null when the settings need none. */
  apiAuthority: string | null
  /** The secret from which the keys of the key channel's clients are derived. */
  keyChannel: string
  /** The key channel's own certificate and private key, in PEM. */
  keyChannelCertificate: string
  keyChannelKey: string
}

/** `publicLine` is `ssh-ed25519 AAAA... comment`; `privateKey` is in OpenSSH's format. */
export type SshKey = { privateKey: string; publicLine: string }

/** The keys for creating and reaching amphorae. */
export type Keys = { amphoraMaster: Buffer; controllerSsh: SshKey; operatorSsh: SshKey }

export function keyFiles(config: Configuration, directory: string): KeyFiles {
  return {
    amphoraMaster: config.keys.amphora_master ?? join(directory, 'keys/amphora-master'),
    controllerSsh: config.keys.controller_ssh ?? join(directory, 'keys/controller-ssh'),
    operatorSsh: config.keys.operator_ssh ?? join(directory, 'keys/operator-ssh'),
    identityCredentials: join(directory, 'keys/identity-credentials'),
    keyManagerMaster: keyManagerMasterFile(config, directory),
    keyManagerAudit: join(directory, 'keys/key-manager-audit'),
    apiAuthority: apiAuthorityFile(config, directory),
    keyChannel: join(directory, 'keys/key-channel'),
    keyChannelCertificate: join(directory, 'keys/key-channel.crt'),
    keyChannelKey: join(directory, 'keys/key-channel.key'),
  }
}

function keyManagerMasterFile({ key_manager: { crypto } }: Configuration, directory: string): string | null {
  if (!crypto.backends.includes('simple')) return null
  const source = masterKeySource(crypto.simple, directory)
  return source.kind === 'file' ? source.path : null
}

function apiAuthorityFile({ api: { tls } }: Configuration, directory: string): string | null {
  return tls.internal_ca || tls.reference !== undefined ? join(directory, 'keys/api-ca') : null
}

/** The file in which the key manager's worker keeps the end of the audit chain. */
export const auditHeadFile = (config: Configuration, directory: string): string =>
  config.key_manager.audit_head_file ?? join(directory, 'key-manager-audit-head')

/** A password of 32 characters that needs no quoting in a URL, a shell or SQL. */
export const generatePassword = (): string => randomBytes(24).toString('base64url')

/** Generates missing keys atomically, readable only by root, except that of a CA; keeps existing keys. */
export async function generateKeys(files: KeyFiles): Promise<void> {
  for (const path of Object.values(files)) {
    if (path !== null) mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  }
  const secrets = ['amphoraMaster', 'identityCredentials', 'keyManagerMaster', 'keyManagerAudit', 'keyChannel'] as const
  for (const path of secrets.map(name => files[name])) {
    if (path !== null && !existsSync(path)) makePrivateFile(path, `${randomBytes(32).toString('hex')}\n`)
  }
  generateChannelCertificate(files)
  await generateSshKey(files.controllerSsh, 'krater-controller')
  await generateSshKey(files.operatorSsh, 'krater-operator')
}

/** The key is written last: a certificate without one is replaced. */
function generateChannelCertificate({ keyChannelCertificate, keyChannelKey }: KeyFiles): void {
  if (existsSync(keyChannelKey)) return
  const { certificate, privateKey } = createChannelCertificate()
  writePrivateFile(keyChannelCertificate, certificate)
  makePrivateFile(keyChannelKey, privateKey)
}

async function generateSshKey(path: string, comment: string): Promise<void> {
  if (existsSync(path)) return
  await withTemporaryDirectory(join(dirname(path), '.new-'), async temporary => {
    const key = join(temporary, 'key')
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', comment, '-f', key], { timeout: 20_000 })
    renameSync(`${key}.pub`, `${path}.pub`)
    renameSync(key, path)
  })
}

/** @throws ConfigurationError when a key is missing or malformed, naming the file and the setting */
export async function loadKeys(files: KeyFiles): Promise<Keys> {
  return {
    amphoraMaster: loadAmphoraMaster(files),
    controllerSsh: await loadSshKey(files.controllerSsh, 'keys.controller_ssh'),
    operatorSsh: await loadSshKey(files.operatorSsh, 'keys.operator_ssh'),
  }
}

/** 32 bytes from which the host keys and heartbeat keys of amphorae are derived. */
export function loadAmphoraMaster(files: KeyFiles): Buffer {
  return loadSecret(files.amphoraMaster, 'keys.amphora_master')
}

/** 32 bytes that encrypt the credentials of the identity API's /v3/credentials resource. */
export function loadIdentityCredentialKey(files: KeyFiles): Buffer {
  return loadSecret(files.identityCredentials, 'the key for stored credentials')
}

/** 32 bytes that key the hash chain of the key manager's audit log. */
export function loadKeyManagerAuditKey(files: KeyFiles): Buffer {
  return loadSecret(files.keyManagerAudit, 'the audit log’s key')
}

/** What clients of the key channel need. */
export type ChannelKeys = { secret: Buffer; certificate: string }

/** The secret of the key channel (32 bytes) and its certificate. */
export const loadChannelKeys = (files: KeyFiles): ChannelKeys => ({
  secret: loadSecret(files.keyChannel, 'the secret of the key channel'),
  certificate: readKey(files.keyChannelCertificate, 'the certificate of the key channel'),
})

/** The certificate and private key of the key channel's server. */
export const loadChannelCertificate = (files: KeyFiles): ChannelCertificate => ({
  certificate: readKey(files.keyChannelCertificate, 'the certificate of the key channel'),
  privateKey: readKey(files.keyChannelKey, 'the private key of the key channel'),
})

function loadSecret(path: string, setting: string): Buffer {
  const hex = readKey(path, setting).trim()
  if (!/^[0-9a-f]{64}$/.test(hex)) throw new ConfigurationError(`${path} (${setting}) must hold 64 hexadecimal digits.`)
  return Buffer.from(hex, 'hex')
}

async function loadSshKey(path: string, setting: string): Promise<SshKey> {
  const privateKey = readKey(path, setting)
  const { stdout } = await run('ssh-keygen', ['-y', '-P', '', '-f', path], { timeout: 20_000 }).catch(() => {
    throw new ConfigurationError(
      `${path} (${setting}) must be an SSH private key without a passphrase, readable only by root.`,
    )
  })
  return { privateKey, publicLine: stdout.trim() }
}

function readKey(path: string, setting: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new ConfigurationError(
      `${path} (${setting}) cannot be read (${(error as NodeJS.ErrnoException).code}). The first \`krater up\` or \`krater db migrate\` generates the keys; later, and on other machines, copy them from a backup.`,
    )
  }
}
