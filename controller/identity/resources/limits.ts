import { jsonAnswer } from '../../api/answer.js'
import { ApiError, notFound } from '../../http/errors.js'
import { type IdentityRoute, listAnswer, listForm, oneForm, route } from '../dialect.js'
import { administrators, anyone } from '../policy.js'

const KINDS = [
  { plural: 'registered_limits', singular: 'registered limit' },
  { plural: 'limits', singular: 'limit' },
] as const

const NONE = `No service enforces unified limits, so there are none. Set quotas at the services: PUT /v2/lbaas/quotas/{project} at the load balancer, PUT /v2.0/quotas/{project} at networking, PUT /v1/project-quotas/{project} at the key manager.`

const group = 'limits'

/** Keystone's unified limits: as Keystone with nothing limited, since every service has quotas of its own. */
export const limitRoutes: readonly IdentityRoute[] = [
  route({
    ...{ method: 'GET', path: '/v3/limits/model', right: anyone, group, status: 200 },
    summary: 'Show the model by which limits would be enforced',
    answer: oneForm('model'),
    handle: async () => {
      const description = 'Limit enforcement and validation does not take project hierarchy into consideration.'
      return jsonAnswer(200, { model: { name: 'flat', description } })
    },
  }),
  ...KINDS.flatMap(({ plural, singular }) => [
    route({
      ...{ method: 'GET', path: `/v3/${plural}`, right: anyone, group, status: 200 },
      summary: `List ${singular}s: always empty`,
      answer: listForm(plural),
      handle: async (_service, call) => listAnswer(call, plural, []),
    }),
    route({
      ...{ method: 'POST', path: `/v3/${plural}`, right: administrators, group, status: 501 },
      summary: `Create ${singular}s: always refused`,
      handle: async () => {
        throw new ApiError(501, NONE)
      },
    }),
    ...(
      [
        ['GET', anyone],
        ['PATCH', administrators],
        ['DELETE', administrators],
      ] as const
    ).map(([method, right]) =>
      route({
        ...{ method, path: `/v3/${plural}/:id`, right, group, status: 404 },
        summary: `${{ GET: 'Show', PATCH: 'Update', DELETE: 'Delete' }[method]} a ${singular}: there are none`,
        handle: async (_service, { params }) => {
          throw notFound(`Could not find ${singular} for ${params.id}.`)
        },
      }),
    ),
  ]),
]
