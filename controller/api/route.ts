import type * as z from 'zod'
import type { Answer } from './answer.js'
import type { Call } from './call.js'
import type { Described } from './described.js'

/** A route that needs a token. The dialect's `authorise` or the handler checks `right`. */
export type ProtectedRoute<Service, Caller, Right, Body = unknown> = Described & {
  right: Right
  request?: z.ZodType<Body>
  handle(service: Service, call: Call<Caller, Body>): Promise<Answer>
}

/** A route that needs no token. */
export type OpenRoute<Service, Body = unknown> = Described & {
  open: true
  request?: z.ZodType<Body>
  handle(service: Service, call: Call<null, Body>): Promise<Answer>
}

export type Route<Service, Caller, Right> = ProtectedRoute<Service, Caller, Right> | OpenRoute<Service>

/**
 * The functions with which a service defines its routes:
 *
 *     export const { route, openRoute } = routesFor<Service, Caller, Right>()
 */
export function routesFor<Service, Caller, Right>() {
  return {
    route: <Body>(route: ProtectedRoute<Service, Caller, Right, Body>): ProtectedRoute<Service, Caller, Right> => route,
    openRoute: <Body>(route: Omit<OpenRoute<Service, Body>, 'open'>): OpenRoute<Service> => ({ ...route, open: true }),
  }
}
