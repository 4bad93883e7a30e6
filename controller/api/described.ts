import type { z } from 'zod'
import type { Parameter, Schema } from './schema.js'

export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** A route but for what it does: what the router, the body reader and the description know of it. */
export type Described = {
  method: Method
  /** `/v2.0/networks/:id`. The part behind a colon is one segment of a path; a static segment goes before one. */
  path: string
  /** Heading under which the description has it. */
  group: string
  /** What it does, in the imperative, without a full stop. */
  summary: string
  /** Of an answer without an error. */
  status: number
  /** Reads the body for `call.body()`, and describes it. */
  request?: z.ZodType
  /** Describes the body where its schema alone does not say everything. */
  requestForm?: Schema
  /** Form of the answer; without it there is no body. */
  answer?: Schema
  /** Media type of the answer, when it is not JSON. */
  answerType?: string
  /** Query parameters and headers: in full, or as `{ $ref }` to shared ones. */
  parameters?: readonly (Parameter | { $ref: string })[]
  /** Largest body, where it differs from the API's. */
  mostBytes?: number
}
