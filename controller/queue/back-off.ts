import { type Fragment, sql } from '../database/sql.js'

/**
 * SQL: seconds to wait after consecutive failures: 1, 2, 4 ... 300.
 * @param failures SQL of an integer of at least 1
 */
export const backOffSeconds = (failures: Fragment): Fragment => sql`least(300, 2 ^ least(${failures} - 1, 20))`
