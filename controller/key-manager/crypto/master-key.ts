import type { Knex } from 'knex'
import type { CryptoBackend } from './backend.js'

/** The configured master key is not the one that the stored keys are under. */
export class WrongMasterKey extends Error {}

/**
 * Records the master key in force, so that project keys may refer to it.
 * @throws WrongMasterKey when keys in the database are under others than are configured
 */
export async function registerMasterKey(database: Knex, { name, masterKeyId }: CryptoBackend): Promise<void> {
  const known = await database('master_key').where({ backend: name }).pluck('id')
  if (known.length > 0 && !known.includes(masterKeyId)) {
    throw new WrongMasterKey(
      `The master key of ${name} (${masterKeyId}) is not the one under which the key manager's secrets were stored (${known.join(', ')}).`,
    )
  }
  await database('master_key').insert({ id: masterKeyId, backend: name }).onConflict('id').ignore()
}
