import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type Finding, fault, ok } from '../../../checks/finding.js'
import { configurationFile } from '../../../config/load.js'
import { keyFiles } from '../../state-directory/keys.js'
import { type Instance, openDatabase } from '../../wiring/instance.js'
import { checkMasterKeys } from '../../wiring/key-manager/keyring.js'

/** Checks that every key exists, and that files with secrets are readable by root alone. */
export function checkKeyFiles({ directory, config }: Instance): Finding[] {
  const keys = Object.values(keyFiles(config, directory)).filter(path => path !== null)
  const missing = keys.filter(path => !existsSync(path))
  const secret = [
    ...keys,
    configurationFile(directory),
    ...['keys/passwords.json', 'openrc', 'admin-openrc', 'clouds.yaml'].map(name => join(directory, name)),
  ]
  const open = secret.filter(path => existsSync(path) && isOpen(path))
  if (missing.length === 0 && open.length === 0) return [ok('keys', 'complete, and readable by root alone')]
  return [
    ...missing.map(path =>
      fault(
        'keys',
        `${path} is missing`,
        'copy it back from a backup of the keys, with mode 600; before the first use, `krater up` generates it',
      ),
    ),
    ...(open.length === 0
      ? []
      : [
          fault(
            'keys',
            `${open.length} files with secrets are open to others: ${open.join(', ')}`,
            `chown root:root ${open.join(' ')} && chmod 600 ${open.join(' ')}`,
          ),
        ]),
  ]
}

function isOpen(path: string): boolean {
  const { mode, uid } = statSync(path)
  return (mode & 0o077) !== 0 || uid !== 0
}

/** Checks that the master keys are those that protect the stored secrets. */
export async function checkKeyManager(instance: Instance): Promise<Finding[]> {
  const database = openDatabase(instance, 'key_manager', 'doctor')
  try {
    await checkMasterKeys(instance, database)
    return [ok('master key', 'it is the one that protects the stored secrets')]
  } finally {
    await database.destroy()
  }
}
