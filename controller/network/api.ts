import Router from '@koa/router'
import type Koa from 'koa'
import type { Context } from 'koa'
import type { Database } from '../database/connection.js'
import { createApplication } from '../http/application.js'
import { createPublicBase } from '../http/public-base.js'
import { takeTurns } from '../http/turns.js'
import { authenticate, placeOf } from '../identity/authenticate.js'
import type { TokenValidator } from '../identity/caller.js'
import type { Logger } from '../log/log.js'
import { createNetworks } from './api/networks.js'
import { presentFault } from './api/neutron-error.js'
import { createNoopResource } from './api/noop.js'
import { mountOtherCollections } from './api/other-collections.js'
import { createPorts } from './api/ports.js'
import { createQuotas, mountQuotas, noopQuotas } from './api/quotas.js'
import { mountResource } from './api/routes.js'
import { createSubnets } from './api/subnets.js'
import type { NetworkSettings } from './options.js'

export type NetworkApiOptions = {
  /** The network service's own database role; not asked at all by the driver `noop`. */
  database: Database
  config: Pick<NetworkSettings, 'driver' | 'quota' | 'shared_addresses'>
  validate: TokenValidator
  /** The public identity URL, for the WWW-Authenticate header. */
  identityUrl: string
  /** What links begin with; the URL at which a request came in when it is not given. */
  publicUrl?: string | undefined
  trustedProxies?: readonly string[]
  log: Logger
}

/** The subset of the Networking API v2.0 that clients of load balancers need: networks, subnets and ports. */
export function createNetworkApi(options: NetworkApiOptions): Koa {
  const { database, config, validate, identityUrl, publicUrl, trustedProxies = [], log } = options
  const app = createApplication({ name: 'network', log, presentFault })
  const router = new Router()
  const base = createPublicBase({ publicUrl, trustedProxies })
  const baseUrl = (ctx: Context) => base(ctx, '')
  const resources =
    config.driver === 'noop'
      ? (['network', 'subnet', 'port'] as const).map(createNoopResource)
      : [createNetworks(database, config), createSubnets(database, config), createPorts(database, config)]

  router.get('/', ctx => {
    const links = [{ rel: 'self', href: `${baseUrl(ctx)}/v2.0/` }]
    ctx.body = { versions: [{ id: 'v2.0', status: 'CURRENT', links }] }
  })
  router.get('/v2.0', ctx => {
    ctx.body = {
      resources: resources.map(({ singular, plural }) => ({
        name: singular,
        collection: plural,
        links: [{ rel: 'self', href: `${baseUrl(ctx)}/v2.0/${plural}` }],
      })),
    }
  })
  for (const resource of resources) mountResource(router, resource, baseUrl)
  mountQuotas(router, config.driver === 'noop' ? noopQuotas : createQuotas(database), config.quota)
  mountOtherCollections(router)

  const isOpen = (path: string) => path === '/'
  app.use(authenticate({ validate, trustedProxies, identityUrl, serviceType: 'network', isOpen }))
  app.use(takeTurns(placeOf))
  app.use(router.routes())
  app.use(router.allowedMethods())
  return app
}
