import type { Context } from 'koa'
import type { Described } from '../../api/described.js'
import type { Database } from '../../database/connection.js'
import { ApiError } from '../../http/errors.js'
import { findContainer } from '../containers/container.js'
import { findSecret } from '../secrets/secret.js'

const OBJECT = /^\/v1\/(secrets|containers)\/([^/]+)/

/**
 * Refuses a request that no route took.
 * @param routes those of the path, of other methods; none when there is no such path
 * @throws ApiError 404 for a path, or a secret or container in it, that is not there; else 405
 */
export async function refuseUnrouted(database: Database, ctx: Context, routes: readonly Described[]): Promise<never> {
  if (routes.length === 0) throw new ApiError(404, 'The resource could not be found.')
  const [, collection, id] = OBJECT.exec(ctx.path) ?? []
  if (collection === 'secrets') await findSecret(database, id)
  if (collection === 'containers') await findContainer(database, id)
  throw new ApiError(405, `The method ${ctx.method} is not allowed for this resource.`, {
    Allow: [...new Set(routes.map(({ method }) => method))].sort().join(', '),
  })
}
