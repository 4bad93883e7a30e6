import { jsonAnswer } from '../../../api/answer.js'
import { objectOf, type Schema } from '../../../api/schema.js'
import { notImplemented } from '../../../http/errors.js'
import { FIELDS, textFilter } from '../../description/parameters.js'
import { enabledProvider, type ProviderCapabilities } from '../../schema/capabilities.js'
import { type ListSettings, namedFields, parseArguments } from '../../schema/list-query.js'
import { authorise } from '../../schema/rights.js'
import { route } from '../dialect.js'

const text: Schema = { type: 'string' }
const NAMED: Schema = { type: 'array', items: objectOf({ name: text, description: text }) }

type Named = { name: string; description: string }

/** Name and description of each, or the chosen one of these two. */
function presented(all: readonly Named[], fields: ReadonlySet<string> | null): Partial<Named>[] {
  const isWanted = (key: string) => fields === null || fields.has(key)
  return all.map(({ name, description }) => ({
    ...(isWanted('name') ? { name } : {}),
    ...(isWanted('description') ? { description } : {}),
  }))
}

const fieldsOf = (queryString: string, { allow_field_selection }: Pick<ListSettings, 'allow_field_selection'>) =>
  allow_field_selection ? namedFields(queryString) : null

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
    parameters: [textFilter('name'), textFilter('description'), FIELDS],
    answer: objectOf({ [name]: NAMED }),
    handle: async ({ providers, config }, { caller, params, queryString }, right) => {
      const args = parseArguments(queryString, ['name', 'description'], ['fields'])
      authorise(caller, right, caller.project?.id ?? null)
      const provider = enabledProvider(providers, params.provider ?? '')
      const keys = keysOf(provider)
      if (keys === null) {
        throw notImplemented(`Provider '${provider.name}' does not support a requested action: ${name}`)
      }
      const matches = (key: Named) =>
        (args.get('name') ?? key.name) === key.name && (args.get('description') ?? key.description) === key.description
      return jsonAnswer(200, { [name]: presented(keys.filter(matches), fieldsOf(queryString, config)) })
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
    parameters: [FIELDS],
    answer: objectOf({ providers: NAMED }),
    // Ignores other arguments, because this list has neither filters nor pagination.
    handle: async ({ providers, config }, { caller, queryString }, right) => {
      authorise(caller, right, caller.project?.id ?? null)
      return jsonAnswer(200, { providers: presented(providers, fieldsOf(queryString, config)) })
    },
  }),
  capabilityRoute('flavor', provider => provider.flavorKeys),
  capabilityRoute('availability zone', provider => provider.availabilityZoneKeys),
]
