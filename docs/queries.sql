-- Views over result files for DuckDB (1.4 or later); docs/queries.md says what each has.
--
--     cd results; duckdb -init ../docs/queries.sql           every .parquet below the current folder
--     SET VARIABLE results = ['/data/results/*/*.parquet'];    other files, at any time
--
-- Names end in their unit: _s seconds, _byte bytes. Facts come from the files, all else is derived here.

-- The files' own columns, and: began, month, node, unit, class, together, timed.
CREATE OR REPLACE VIEW results AS
WITH stored AS (
    SELECT * FROM read_parquet(coalesce(getvariable('results'), ['**/*.parquet']), union_by_name = true)
    UNION ALL BY NAME
    -- Columns that older files lack: without rows, they only add the column.
    SELECT
        NULL::VARCHAR AS host, NULL::VARCHAR AS pci_bus, NULL::VARCHAR AS gpu_uuid,
        NULL::VARCHAR AS tags, NULL::VARCHAR AS source, NULL::VARCHAR AS threads_asked,
        NULL::VARCHAR AS regime, NULL::BIGINT AS concurrent_gpus, NULL::BIGINT AS byte_again,
        NULL::BIGINT AS moved_written, NULL::DOUBLE[] AS samples_s, NULL::BIGINT[] AS visit_samples
    WHERE false
)
SELECT
    * REPLACE (coalesce(threads_asked, 'all') AS threads_asked),
    try_strptime(left(run_id, 16), '%Y%m%dT%H%M%SZ') AS began,
    strftime(began, '%Y-%m') AS month,
    coalesce(tags ->> '$.node', host, 'unknown') AS node,
    CASE device_kind WHEN 'cpu' THEN device_id || '-' || node ELSE device_id END AS unit,
    CASE
        WHEN operator = 'launch' THEN 'launch'
        WHEN operator = 'transfer' THEN 'transfer'
        WHEN cache = 'warm' THEN 'cache'
        WHEN arithmetic <> 'vector' AND flop >= 64 * byte THEN 'compute'
        ELSE 'memory'
    END AS class,
    coalesce(concurrent_gpus, 1) > 1 AS together,
    status = 'ok' AND median_s > 0 AND isfinite(median_s) AS timed
FROM stored;

-- Of each unit the newest time of each case, alone and together with the other GPUs of its node.
CREATE OR REPLACE VIEW latest AS
SELECT
    device, device_kind, node, pci_bus, unit, run_id, began, sweep, role, operator, implementation, dtype,
    parameters, cache, threads_asked, protocol, regime, clock, fill, class, together, median_s, low_s, high_s,
    flop, byte, sm_clock_hz, power_w, temperature_c
FROM results
WHERE timed AND source IS NULL
QUALIFY row_number() OVER (
    PARTITION BY
        device, unit, sweep, implementation, parameters, cache, threads_asked, protocol, regime, clock, fill, together
    ORDER BY utc DESC
) = 1;

-- Median of each fifth of a visit's samples, as Measurement.quickest_s cuts it.
CREATE OR REPLACE MACRO fifths(visit) AS list_transform(
    range(5),
    lambda part: list_median(visit[
        part * (len(visit) // 5) + least(part, len(visit) % 5) + 1
        : (part + 1) * (len(visit) // 5) + least(part + 1, len(visit) % 5)
    ])
);

-- The lowest of these over the visits of 10 samples and more; NULL if there are none.
CREATE OR REPLACE MACRO quickest(samples, counts) AS list_min(flatten(list_transform(
    range(1, len(counts) + 1),
    lambda v: CASE WHEN counts[v] >= 10 THEN fifths(
        samples[coalesce(list_sum(counts[1 : v - 1]), 0) + 1 : list_sum(counts[1 : v])]
    ) ELSE [] END
)));

-- What each run reached with a cold cache: launch floor, peaks, seconds for each byte by share of written bytes.
CREATE OR REPLACE VIEW ceilings AS
WITH ceiling AS (
    SELECT
        device, run_id, device_id, threads_asked, flop, byte, median_s,
        CASE WHEN flop > 0 THEN 'peak' WHEN byte > 0 THEN 'pass' ELSE 'floor' END AS what,
        CASE what WHEN 'peak' THEN arithmetic || ' ' || dtype WHEN 'floor' THEN implementation END AS kind,
        CASE what WHEN 'pass' THEN round(byte_written / byte, 3) END AS written,
        coalesce(
            quickest(samples_s, CASE
                WHEN list_sum(visit_samples) = len(samples_s) THEN visit_samples ELSE [len(samples_s)]
            END),
            median_s
        ) AS least_s
    FROM results
    WHERE
        timed AND role <> 'measurement' AND cache = 'cold'
        -- Not the probes of one tile and of one SM.
        AND NOT CASE
            WHEN flop > 0 AND regexp_matches(implementation, '-[1-9][0-9]*x[1-9][0-9]*$') THEN coalesce(
                suffix(implementation, concat('-', parameters ->> '$.m', 'x', parameters ->> '$.n')), false
            )
            WHEN flop = 0 AND byte > 0 AND contains(parameters, '"programs"') THEN
                (parameters ->> '$.programs')::BIGINT BETWEEN 1 AND sm_count - 1
            ELSE false
        END
), highest AS (
    SELECT
        device, run_id, device_id, threads_asked, what, kind, written,
        median(median_s) FILTER (what = 'floor') AS floor_s,
        max(CASE what WHEN 'peak' THEN flop ELSE byte END / least_s) AS per_s
    FROM ceiling
    GROUP BY ALL
)
SELECT
    device, run_id, device_id, threads_asked,
    min(floor_s) AS launch_s,
    map_from_entries(list((kind, per_s)) FILTER (what = 'peak')) AS peak_flop_per_s,
    list({'written': written, 'byte_per_s': per_s} ORDER BY written) FILTER (what = 'pass') AS memory
FROM highest
GROUP BY ALL;

-- Seconds for each byte where a share of the bytes is written: a straight line between the passes measured.
CREATE OR REPLACE MACRO between_passes(below, above, share) AS
    1 / below.byte_per_s
    + (1 / above.byte_per_s - 1 / below.byte_per_s) * (share - below.written) / (above.written - below.written);
CREATE OR REPLACE MACRO second_per_byte(memory, share) AS CASE
    WHEN share <= memory[1].written THEN 1 / memory[1].byte_per_s
    WHEN share >= memory[-1].written THEN 1 / memory[-1].byte_per_s
    ELSE between_passes(
        list_filter(memory, lambda pass: pass.written <= share)[-1],
        list_filter(memory, lambda pass: pass.written > share)[1],
        share
    )
END;

-- Each time with a cold cache beside the roof of its own run: predicted_s, bound_by, of_roof.
CREATE OR REPLACE VIEW roof_share AS
WITH traffic AS (
    SELECT
        device, device_id, device_kind, node, pci_bus, unit, run_id, began, month, sweep, role, operator,
        implementation, arithmetic, dtype, parameters, cache, threads_asked, class, together, median_s, flop, byte,
        byte_moved - coalesce(byte_again, 0) AS once,
        byte_moved - coalesce(byte_again, 0)
            * CASE WHEN once > 0 THEN least(1, cache_byte / once) ELSE 0 END AS traffic_byte,
        CASE
            WHEN traffic_byte > 0 THEN coalesce(moved_written, byte_written) / traffic_byte ELSE 0
        END AS written
    FROM results
    WHERE timed AND cache = 'cold'
), terms AS (
    SELECT
        traffic.*, launch_s,
        CASE WHEN traffic_byte = 0 THEN 0 ELSE traffic_byte * second_per_byte(memory, written) END AS memory_s,
        CASE
            WHEN flop = 0 THEN 0
            -- Without a peak of its own, vector arithmetic is taken to be bound by memory.
            WHEN arithmetic = 'vector' THEN coalesce(flop / peak_flop_per_s[arithmetic || ' ' || dtype], 0)
            ELSE flop / peak_flop_per_s[arithmetic || ' ' || dtype]
        END AS compute_s
    FROM traffic LEFT JOIN ceilings USING (device, run_id, device_id, threads_asked)
)
SELECT
    device, device_kind, node, pci_bus, unit, run_id, began, month, sweep, role, operator, implementation,
    dtype, parameters, cache, threads_asked, class, together, median_s, flop, byte,
    launch_s + memory_s + compute_s - least(memory_s, compute_s) AS predicted_s,
    CASE
        WHEN predicted_s IS NULL THEN NULL
        WHEN launch_s >= memory_s AND launch_s >= compute_s THEN 'launch'
        WHEN memory_s >= compute_s THEN 'memory'
        ELSE 'compute'
    END AS bound_by,
    predicted_s / median_s AS of_roof
FROM terms;

-- Of each unit and class, the newest times beside the medians of all units of its kind: 1.05 is 5 % slower.
CREATE OR REPLACE VIEW fleet AS
WITH of_kind AS (
    SELECT
        device, sweep, implementation, parameters, cache, threads_asked, protocol, regime, clock, fill, together,
        median(median_s) AS kind_s, count(*) AS units
    FROM latest
    GROUP BY ALL
), ratios AS (
    SELECT latest.*, median_s / kind_s AS ratio, units
    FROM latest JOIN of_kind ON
        of_kind.device = latest.device AND of_kind.sweep = latest.sweep
        AND of_kind.implementation = latest.implementation AND of_kind.parameters = latest.parameters
        AND of_kind.cache = latest.cache AND of_kind.threads_asked = latest.threads_asked
        AND of_kind.protocol = latest.protocol AND of_kind.regime IS NOT DISTINCT FROM latest.regime
        AND of_kind.clock = latest.clock AND of_kind.fill = latest.fill AND of_kind.together = latest.together
)
SELECT
    device, node, pci_bus, unit, class, together, median(ratio) AS time_ratio, min(ratio) AS least_ratio,
    max(ratio) AS most_ratio, count(*) AS cases, min(units) AS units, max(began) AS began
FROM ratios
GROUP BY ALL;

-- Each of our kernels beside the fastest library that timed the same problem in the same run: above 1 is ahead.
CREATE OR REPLACE VIEW duel AS
WITH problem AS (
    -- The same problem in two sweeps is one problem; its latest row counts.
    SELECT
        device, node, pci_bus, unit, run_id, began, operator, dtype, parameters, cache, threads_asked, together,
        implementation, arg_max(median_s, utc) AS median_s
    FROM results
    WHERE timed AND source IS NULL AND role = 'measurement'
    GROUP BY ALL
), library AS (
    SELECT
        unit, run_id, operator, parameters, cache, threads_asked, together,
        min(median_s) AS library_s, arg_min(implementation, median_s) AS library
    FROM problem
    WHERE implementation NOT LIKE 'triton%'
    GROUP BY ALL
)
SELECT problem.*, library, library_s, library_s / median_s AS ratio
FROM problem JOIN library USING (unit, run_id, operator, parameters, cache, threads_asked, together)
WHERE implementation LIKE 'triton%';
