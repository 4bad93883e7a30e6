import type { Context } from 'koa'
import type { Described } from '../../api/described.js'
import type { Database } from '../../database/connection.js'
import { ApiError } from '../../http/errors.js'
import { findContainer } from '../containers/container.js'
import { findSecret } from '../secrets/secret.js'

const OBJECT_PATH = /^\/v1\/(secrets|containers)\/([^/]+)/

/**
 * Refuses a request that matches no route.
 * @param routes the routes of this path with other methods; empty for an unknown path
 * @throws ApiError 404 for an unknown path, or a missing secret or container in it; otherwise 405
 */
export async function refuseUnrouted(database: Database, ctx: Context, routes: readonly Described[]): Promise<never> {
  if (routes.length === 0) throw new ApiError(404, 'There is nothing at this path; /docs lists the paths of this API.')
  const [, collection, id] = OBJECT_PATH.exec(ctx.path) ?? []
  if (collection === 'secrets') await findSecret(database, id)
  if (collection === 'containers') await findContainer(database, id)
  throw new ApiError(405, `The method ${ctx.method} is not allowed for this resource.`, {
    Allow: [...new Set(routes.map(({ method }) => method))].sort().join(', '),
  })
}
