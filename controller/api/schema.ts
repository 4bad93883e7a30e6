import * as z from 'zod'

/** A JSON Schema of the 2020-12 draft, which OpenAPI 3.1 uses. */
export type Schema = Readonly<Record<string, unknown>>

/** An OpenAPI document. */
export type OpenApi = Readonly<Record<string, unknown>>

export type Parameter = {
  name: string
  in: 'query' | 'path' | 'header'
  description: string
  schema: Schema
  required?: boolean
  style?: 'form'
  explode?: boolean
}

export const ref = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` })

export const objectOf = (properties: Readonly<Record<string, Schema>>, required = Object.keys(properties)): Schema => ({
  type: 'object',
  properties,
  ...(required.length === 0 ? {} : { required }),
})

/** The JSON Schema of the input of a zod schema. It omits what only the schema's functions check. */
export function formOf(schema: z.ZodType): Schema {
  const { $schema: _, ...form } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' })
  return form
}
