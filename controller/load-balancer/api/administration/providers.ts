import type { Answer } from '../../../api/answer.js'
import { notImplemented } from '../../../http/errors.js'
import { enabledProvider, type OfferedProvider, type ProfileKey } from '../../schema/capabilities.js'
import { parseArguments } from '../../schema/list-query.js'
import { authorise } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import type { Call, Routes } from '../routes.js'

type Keys = OfferedProvider['flavorKeys']

/** The enabled providers and what the data of profiles may ask of each. */
export function providerRoutes({ providers }: Service): Routes {
  return {
    // Arguments are not looked at, as this list has neither filters nor pages.
    'GET /lbaas/providers': async ({ caller, right }) => {
      authorise(caller, right, caller.project?.id ?? null)
      const listed = providers.map(({ name, description }) => ({ name, description }))
      return { status: 200, json: JSON.stringify({ providers: listed }) }
    },
    'GET /lbaas/providers/:provider/flavor_capabilities': async call =>
      listKeys(providers, call, 'flavor_capabilities', provider => provider.flavorKeys),
    'GET /lbaas/providers/:provider/availability_zone_capabilities': async call =>
      listKeys(providers, call, 'availability_zone_capabilities', provider => provider.availabilityZoneKeys),
  }
}

/** @throws ApiError 400 when the provider is not enabled, 501 when it has no such data */
function listKeys(
  providers: readonly OfferedProvider[],
  { caller, right, params, queryString }: Call,
  what: string,
  keysOf: (provider: OfferedProvider) => Keys,
): Answer {
  const args = parseArguments(queryString, ['name', 'description'])
  authorise(caller, right, caller.project?.id ?? null)
  const provider = enabledProvider(providers, params.provider ?? '')
  const keys = keysOf(provider)
  if (keys === null) throw notImplemented(`Provider '${provider.name}' does not support a requested action: ${what}`)
  const matches = (key: ProfileKey) =>
    (args.get('name') ?? key.name) === key.name && (args.get('description') ?? key.description) === key.description
  const listed = keys.filter(matches).map(({ name, description }) => ({ name, description }))
  return { status: 200, json: JSON.stringify({ [what]: listed }) }
}
