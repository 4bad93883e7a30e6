import type { Context } from 'koa'
import type { ApiError } from '../http/errors.js'
import type { Fault } from '../http/fault.js'
import type { Place } from '../process/fair-queue.js'
import type { Answer } from './answer.js'
import type { BodyRules, Call, Location, PlainLocation, Validate } from './call.js'
import type { Described } from './described.js'
import type { Microversions } from './microversion.js'

/**
 * What distinguishes one API from the others. `Service` holds the parts that its handlers use, `Caller` describes an
 * authenticated client, and `Right` is the right that a route requires.
 */
export type Dialect<Service, Caller, Right> = {
  /** Name of the service in the log. */
  name: string
  /** Addresses and networks of proxies whose X-Forwarded-* headers are trusted. */
  trustedProxies: readonly string[]
  /** The URL by which clients reach the API, if the operator configured one. Takes precedence over all headers. */
  publicUrl?: string | undefined
  caseSensitive: boolean
  /** Whether every GET route also answers HEAD. */
  headIsGet: boolean
  microversions?: Microversions
  body: BodyRules

  /** Interprets the location of a request. It may refuse the request. */
  locate?: (ctx: Context, plain: PlainLocation) => Location
  /** Identifies the caller. @param path as the client wrote it @throws ApiError 401 */
  authenticate: (ctx: Context, path: string) => Promise<Caller>
  /** Whether a path without a route requires a token before it is answered with 404. */
  hidesPath: (path: string) => boolean
  /** The request's place in the fair queue; null when it needs no turn. @param caller null on open routes */
  placeOf: (caller: Caller | null, ctx: Context) => Place | null
  /** Checks headers such as Accept before the handler runs, and sets the headers of every answer. @throws ApiError */
  admit?: (ctx: Context, path: string) => void
  /** Paths that are answered without a token and for every method, such as a health check. */
  intercept?: Readonly<Record<string, (ctx: Context) => Promise<void>>>

  /** Checks a route's right as far as token and path allow. Without it, handlers check rights. @throws ApiError 403 */
  authorise?: (service: Service, call: Call<Caller>, right: Right) => void
  validate: Validate
  /** Wraps every handler, for example to detect repeated requests. */
  run?: (service: Service, call: Call<Caller>, handle: (service: Service) => Promise<Answer>) => Promise<Answer>
  /** Called with each error of a protected route before the client gets it. */
  refused?: (service: Service, call: Call<Caller>, right: Right, error: unknown) => Promise<void>
  /**
   * Refuses a request without a matching route in its own way; by default, the kernel does.
   * @param routes of the path
   */
  unrouted?: (service: Service, ctx: Context, routes: readonly Described[]) => Promise<void>

  /** Translates an error, such as a violated constraint, for clients. @returns any other error unchanged */
  translate?: (error: unknown, location: Location) => unknown
  /** An error about the path itself: 404 or 405. */
  routingError?: (status: number, message: string) => ApiError
  /** Content-Type of errors; by default JSON's. */
  faultType?: string
  /** The body of an error. */
  presentFault: (fault: Fault, error: unknown) => unknown
}
