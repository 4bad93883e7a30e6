/** The body of an answer. */
export type Json = { [key: string]: JsonValue }
export type JsonValue = string | number | boolean | null | JsonValue[] | Json

export type Reply = { status: number; headers: Headers; text: string; body: Json }

/** The value at a path inside an answer; undefined when the path leads nowhere. */
export function at(value: JsonValue | undefined, ...path: (string | number)[]): JsonValue | undefined {
  return path.reduce<JsonValue | undefined>((inner, key) => {
    if (Array.isArray(inner)) return inner[Number(key)]
    return typeof inner === 'object' && inner !== null ? inner[key] : undefined
  }, value)
}

/** The id of the object that an answer wraps under this key. */
export const idIn = (reply: Reply, key: string): string => String(at(reply.body, key, 'id'))
