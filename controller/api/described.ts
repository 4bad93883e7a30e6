import type * as z from 'zod'
import type { Parameter, Schema } from './schema.js'

export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** A route without its handler: what the router, the body reader and the description use. */
export type Described = {
  method: Method
  /** `/v2.0/networks/:id`. A name after a colon matches one path segment; static segments take precedence. */
  path: string
  /** Heading in the description. */
  group: string
  /** What the route does, in the imperative, without a full stop. */
  summary: string
  /** Status of a successful answer. */
  status: number
  /** Parses the body for `call.body()`, and describes it. */
  request?: z.ZodType
  /** Describes the body if `request` does not describe it fully. */
  requestForm?: Schema
  /** Schema of the answer; without it the answer has no body. */
  answer?: Schema
  /** Media type of the answer, if not JSON. */
  answerType?: string
  /** Query parameters and headers: in full, or as `{ $ref }` to shared ones. */
  parameters?: readonly (Parameter | { $ref: string })[]
  /** Maximum size of the body, if it differs from the API's. */
  maxBytes?: number
}
