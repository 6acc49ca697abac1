/* pressure: when the host's memory is nearly used up, ask for the executor's caches.
 *
 * The numbers are those of the hardware behind the host device, or behind a card's name on its
 * memory (cuda:0@cpu) where that is all there is: limits of control groups count where they are
 * lower than the machine's RAM. After a reset at P percent the next one needs P + hysteresis, else a
 * machine that is simply full would be reset after every prompt; it is armed again as soon as usage
 * has been below threshold - hysteresis, or below the threshold right after a reset. */
#include "residency/residency_impl.h"

#define PERCENT_DEFAULT 85.0
#define HYSTERESIS_DEFAULT 5.0

static double threshold(const struct residency *r)
{
    return r->cfg.pressure_percent > 0 ? r->cfg.pressure_percent : PERCENT_DEFAULT;
}

static double hysteresis(const struct residency *r)
{
    return r->cfg.pressure_hysteresis > 0 ? r->cfg.pressure_hysteresis : HYSTERESIS_DEFAULT;
}

const struct device *res_ram(const struct residency *r)
{
    if (r->host < r->n_devices)
        return devset_at(r->devices, r->host);
    for (size_t i = 0; i < r->n_devices; i++)
        if (dev_can(devset_at(r->devices, i), BERTH_CAP_HOST_VISIBLE))
            return devset_at(r->devices, i);
    return NULL;
}

static berth_status usage(const struct residency *r, double *percent, berth_err *err)
{
    struct dev_info info;
    const struct device *ram = res_ram(r);
    *percent = 0;
    if (!ram) /* nothing to run out of */
        return BERTH_OK;
    berth_status s = dev_info(ram, &info, err);
    if (s == BERTH_OK && info.total)
        *percent = 100.0 * (double)(info.total - info.free) / (double)info.total;
    return s;
}

static void snapshot(struct residency *r, const char *what, double percent)
{
    char tag[JOURNAL_NAME_MAX];
    snprintf(tag, sizeof tag, "%s:%.1fpct", what, percent);
    journal_snapshot(r->journal, "cpu_monitor", tag);
}

berth_status res_pressure_check(struct residency *r, bool force, enum res_pressure *out,
                                double *percent, berth_err *err)
{
    double used;
    enum res_pressure found = RES_PRESSURE_LOW;
    berth_status s = usage(r, &used, err);
    if (s)
        return err_add(err, "memory pressure");
    if (used < threshold(r) - hysteresis(r))
        r->pressure_last = 0;
    if (used > threshold(r)) {
        if (r->prompt_running && !force) {
            found = RES_PRESSURE_BUSY; /* band or not: res_prompt_end() looks again */
        } else if (r->pressure_last > 0 && used <= r->pressure_last + hysteresis(r)) {
            found = RES_PRESSURE_BAND;
            snapshot(r, "skip_hysteresis", used);
        } else {
            found = RES_PRESSURE_RESET;
            r->pressure_last = used;
            r->metrics.pressure_resets++;
            snapshot(r, "trigger", used);
            log_info(r->log, "res.pressure", "used=%.1f%% threshold=%.1f%%", used, threshold(r));
            r->asked |= RES_ASKED_PRESSURE;
        }
    }
    if (out)
        *out = found;
    if (percent)
        *percent = used;
    return BERTH_OK;
}

void res_pressure_after_reset(struct residency *r)
{
    double used;
    berth_err err = { 0 };
    if (r->pressure_last > 0 && usage(r, &used, &err) == BERTH_OK && used <= threshold(r))
        r->pressure_last = 0;
}
