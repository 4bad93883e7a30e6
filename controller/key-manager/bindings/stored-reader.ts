import type { Knex } from 'knex'
import type { Reader } from '../../../x509/material/load.js'
import { Unusable } from '../../../x509/material/material.js'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { ApiError } from '../../http/errors.js'
import { findContainer } from '../containers/container.js'
import type { Target } from '../rights.js'
import { findPayload, payloadContext } from '../secrets/secret.js'
import type { Service } from '../service.js'

/** The same text for both, so a caller cannot tell another project's objects from missing ones. */
const ABSENT = 'it does not exist or you may not use it'

/** Whether the caller may read the object. */
export type MayRead = (kind: 'secret' | 'container', target: Target & { id: string }) => boolean

/** Reads what a caller may read from the key manager's own tables. */
export function createStoredReader(
  { database, keyring }: Pick<Service, 'database' | 'keyring'>,
  mayRead: MayRead,
): Reader {
  return {
    payload: async ({ id }) => {
      const secret = await found(findPayload(database, id))
      if (!mayRead('secret', secret)) throw new Unusable(ABSENT)
      if (secret.sealed === null) throw new Unusable('it has no payload')
      return keyring.open(secret.sealed, payloadContext(secret.id))
    },
    parts: async ({ id }) => {
      const container = await found(findContainer(database, id))
      if (!mayRead('container', container)) throw new Unusable(ABSENT)
      if (container.type !== 'certificate') throw new Unusable('it is not a container of type certificate')
      const parts = await partsOf(database, id)
      return new Map(parts.map(({ name, secretId }) => [name ?? '', { kind: 'secrets', id: secretId }]))
    },
  }
}

/** The secrets of a container, in their order. */
export const partsOf = (database: Knex, containerId: string): Promise<{ name: string | null; secretId: string }[]> =>
  many(
    database,
    sql<{ name: string | null; secretId: string }>`
      SELECT name, secret_id AS "secretId" FROM container_secret WHERE container_id = ${containerId} ORDER BY position`,
  )

async function found<T>(look: Promise<T>): Promise<T> {
  return look.catch(error => {
    if (error instanceof ApiError && error.status === 404) throw new Unusable(ABSENT)
    throw error
  })
}
