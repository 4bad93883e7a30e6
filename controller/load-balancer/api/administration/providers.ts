import { jsonAnswer } from '../../../api/answer.js'
import { objectOf, type Schema } from '../../../api/schema.js'
import { notImplemented } from '../../../http/errors.js'
import { textFilter } from '../../description/parameters.js'
import { enabledProvider, type ProfileKey, type ProviderCapabilities } from '../../schema/capabilities.js'
import { parseArguments } from '../../schema/list-query.js'
import { authorise } from '../../schema/rights.js'
import { route } from '../dialect.js'

const text: Schema = { type: 'string' }
const NAMED: Schema = { type: 'array', items: objectOf({ name: text, description: text }) }

/**
 * Route that lists the profile keys of a provider.
 * @throws ApiError 400 when the provider is not enabled, 501 when it has no such keys
 */
const capabilityRoute = (
  kind: 'flavor' | 'availability zone',
  keysOf: (provider: ProviderCapabilities) => ProviderCapabilities['flavorKeys'],
) => {
  const name = `${kind.replace(' ', '_')}_capabilities`
  return route({
    method: 'GET',
    path: `/lbaas/providers/:provider/${name}`,
    group: 'providers',
    right: 'admin',
    summary: `List the ${kind} capabilities of a provider`,
    status: 200,
    parameters: [textFilter('name'), textFilter('description')],
    answer: objectOf({ [name]: NAMED }),
    handle: async ({ providers }, { caller, params, queryString }, right) => {
      const args = parseArguments(queryString, ['name', 'description'])
      authorise(caller, right, caller.project?.id ?? null)
      const provider = enabledProvider(providers, params.provider ?? '')
      const keys = keysOf(provider)
      if (keys === null) {
        throw notImplemented(`Provider '${provider.name}' does not support a requested action: ${name}`)
      }
      const matches = (key: ProfileKey) =>
        (args.get('name') ?? key.name) === key.name && (args.get('description') ?? key.description) === key.description
      return jsonAnswer(200, { [name]: keys.filter(matches).map(({ name, description }) => ({ name, description })) })
    },
  })
}

export const providerRoutes = [
  route({
    method: 'GET',
    path: '/lbaas/providers',
    group: 'providers',
    right: 'read',
    summary: 'List the enabled providers',
    status: 200,
    answer: objectOf({ providers: NAMED }),
    // Ignores arguments, because this list has neither filters nor pagination.
    handle: async ({ providers }, { caller }, right) => {
      authorise(caller, right, caller.project?.id ?? null)
      return jsonAnswer(200, { providers: providers.map(({ name, description }) => ({ name, description })) })
    },
  }),
  capabilityRoute('flavor', provider => provider.flavorKeys),
  capabilityRoute('availability zone', provider => provider.availabilityZoneKeys),
]
