import * as z from 'zod'
import { contains, parseAddress, parseCidr } from '../../addresses.js'
import { attribute } from '../body.js'
import { NeutronError } from '../neutron-error.js'
import type { Leg } from './legs.js'
import type { Route } from './router-source.js'

const MAX_ROUTES = 30

/** More in one request is not worth comparing. */
const MAX_GIVEN = 10 * MAX_ROUTES

/** The attribute routes. */
export const routes = z
  .array(z.strictObject({ destination: attribute.cidr.transform(cidr => cidr.text), nexthop: attribute.address }))
  .max(MAX_GIVEN, { error: `the maximum is ${MAX_GIVEN} routes in a request` })

const isSame = (a: Route, b: Route) => a.destination === b.destination && a.nexthop === b.nexthop

/** All routes of both lists, each once. Pure. */
export const addRoutes = (present: readonly Route[], added: readonly Route[]): Route[] =>
  [...present, ...added].filter((route, index, all) => all.findIndex(other => isSame(other, route)) === index)

/** The present routes without the removed ones. Pure. */
export const removeRoutes = (present: readonly Route[], removed: readonly Route[]): Route[] =>
  present.filter(route => !removed.some(other => isSame(other, route)))

/** Checks the routes of a router with these legs. Pure. @throws NeutronError 400 */
export function checkRoutes(
  routerId: string,
  routes: readonly Route[],
  legs: readonly Pick<Leg, 'cidr' | 'address'>[],
): void {
  if (routes.length > MAX_ROUTES) {
    throw new NeutronError(
      400,
      'RoutesExhausted',
      `Unable to complete operation for ${routerId}. The number of routes exceeds the maximum ${MAX_ROUTES}.`,
    )
  }
  for (const route of routes) {
    const problem = problemOf(route, legs)
    if (problem === null) continue
    throw new NeutronError(400, 'InvalidRoutes', `Invalid format for routes: ${JSON.stringify([route])}, ${problem}`)
  }
}

function problemOf({ destination, nexthop }: Route, legs: readonly Pick<Leg, 'cidr' | 'address'>[]): string | null {
  if (parseCidr(destination)?.version !== parseAddress(nexthop)?.version) {
    return 'the nexthop has another IP version than the destination'
  }
  if (legs.some(({ address }) => address === nexthop)) return 'the nexthop is used by router'
  const isConnected = legs.some(({ cidr }) => contains(parseCidr(cidr)!, nexthop))
  return isConnected ? null : 'the nexthop is not connected with router'
}
