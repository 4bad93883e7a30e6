import type { z } from 'zod'
import type { Answer } from './answer.js'
import type { Call } from './call.js'
import type { Described } from './described.js'

/** A route that needs a token. `right` is what the dialect's `authorise`, or the handler, checks. */
export type ProtectedRoute<Service, Caller, Right, Body = unknown> = Described & {
  right: Right
  request?: z.ZodType<Body>
  handle(service: Service, call: Call<Caller, Body>): Promise<Answer>
}

/** A route that everybody may use without a token. */
export type OpenRoute<Service, Body = unknown> = Described & {
  open: true
  request?: z.ZodType<Body>
  handle(service: Service, call: Call<null, Body>): Promise<Answer>
}

export type Route<Service, Caller, Right> = ProtectedRoute<Service, Caller, Right> | OpenRoute<Service>

/**
 * What a service writes its routes with:
 *
 *     export const { route, openRoute } = routesFor<Service, Caller, Right>()
 */
export function routesFor<Service, Caller, Right>() {
  return {
    route: <Body>(route: ProtectedRoute<Service, Caller, Right, Body>): ProtectedRoute<Service, Caller, Right> => route,
    openRoute: <Body>(route: Omit<OpenRoute<Service, Body>, 'open'>): OpenRoute<Service> => ({ ...route, open: true }),
  }
}
