import { authorise } from './rights.js'
import type { Routes, Service } from './routes.js'

/** The enabled providers. Arguments are not looked at, as this list has neither filters nor pages. */
export function providerRoutes({ providers }: Service): Routes {
  return {
    'GET /lbaas/providers': async ({ caller, right }) => {
      authorise(caller, right, caller.project?.id ?? null)
      const listed = providers.map(({ name, description }) => ({ name, description }))
      return { status: 200, json: JSON.stringify({ providers: listed }) }
    },
  }
}
